"""JPEGs with any bytes after their end (Motion Photos) are accepted; truncated ones are refused."""

import random

import PIL.Image
import pytest
from support.odd_images import saved
from support.raw import picture

from perennial.data.images import Image
from perennial.data.images.accept import accepted
from perennial.data.images.decode import decoded

PHOTO = PIL.Image.fromarray(picture(1, 64))
VIDEO = b"\0\0\0\x18ftypmp42\0\0\0\0isommp42"


def jpeg(image=PHOTO, **options):
    return saved(image, "JPEG", **options)


def thumbnail():
    """An EXIF block that holds a whole JPEG."""
    return b"Exif\0\0" + jpeg(PHOTO.resize((8, 8)))


JPEGS = {
    "baseline": jpeg(), "progressive": jpeg(progressive=True), "grey": jpeg(PHOTO.convert("L")),
    "restart markers": jpeg(restart_marker_blocks=2), "thumbnail": jpeg(exif=thumbnail()),
}  # fmt: skip
MARKERS = (b"\xff\xd9", b"\xff\xda", b"\xff\xd8\xff", b"\xff\xd9\xff\xda", b"\xff\xc0", b"")


def trailer(seed):
    draw = random.Random(seed)
    pieces = [piece for _ in range(6) for piece in (draw.randbytes(draw.randrange(200)), draw.choice(MARKERS))]
    return VIDEO + b"".join(pieces) + (jpeg(progressive=True)[: draw.randrange(2000)] if seed % 3 == 0 else b"")


TRAILERS = [trailer(seed) for seed in range(45)] + [jpeg(), jpeg(progressive=True), b"\xff\xda", b"\xff"]


@pytest.mark.parametrize("kind", JPEGS)
def test_bytes_after_the_end_are_ignored(kind):
    results = [accepted(JPEGS[kind] + trailer, "a.jpg") for trailer in TRAILERS]
    assert [result for result in results if not isinstance(result, Image)] == []
    assert all(decoded(result.encoded).size == PHOTO.size for result in results)
