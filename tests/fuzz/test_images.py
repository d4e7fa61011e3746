"""Image files of any content cost work in proportion to their bytes, and training decodes what is accepted."""

import os
from contextlib import suppress
from random import Random

import pytest
import tensorflow as tf
from fuzz.odd_images import Work, counted, odd, valid
from support.odd_images import PHOTO, saved

from perennial.data.images import BadImage, Refused, accept, jpeg, png
from perennial.data.images.decode import array, decoded, header

HEADERS = int(os.environ.get("PERENNIAL_FUZZED_HEADERS", "3000"))
DECODED = int(os.environ.get("PERENNIAL_FUZZED_IMAGES", "1500"))
FILES = valid()
# Four readers in a row; a JPEG's segments of 4 bytes with a byte between cost most lines and bytes.
LINES_PER_BYTE, BYTES_PER_BYTE, AT_LEAST = 40, 250, 5000
UNPACKED = 1100  # bytes in a byte of a zlib stream, at most
ROUNDING = 6  # of levels, between two versions of libjpeg; 3 where colours have the full resolution


def require_linear(content):
    """Check the work of the readers of a file's structure that convert, validate, predict and serve call."""
    work = Work()
    with counted(work) as watch:
        watched = watch(content)
        for read in (header, accept.is_kept, accept.size):
            with suppress(Refused):
                read(watched)
    assert work.lines <= AT_LEAST + LINES_PER_BYTE * len(content), content[:100]
    most = UNPACKED if content.startswith(png.SIGNATURE) else BYTES_PER_BYTE
    assert work.bytes <= AT_LEAST + most * len(content), content[:100]


def test_fuzzed_headers_cost_work_in_proportion_to_their_bytes():
    draw = Random(0)
    for _ in range(HEADERS):
        require_linear(odd(draw, FILES))


IHDR = png.chunk(b"IHDR", b"\0\0\0\4\0\0\0\4\x08\2\0\0\0")
HOSTILE = {
    "fill bytes": b"\xff\xd8" + b"\xff" * 60_000,
    "empty scans": b"\xff\xd8\xff\xda\0\2" + b"\xff\xda\0\2" * 20_000,
    "EXIF and fill bytes": b"\xff\xd8\xff\xe1\0\x0eExif\0\0II*\0" + b"\xff" * 60_000,
    "empty segments": b"\xff\xd8" + b"\xff\xe0\0\2" * 20_000,
    "zeros after marks": b"\xff\xd8\xff\xe0\0\2" + b"\xff\0" * 30_000,
    "restart markers": b"\xff\xd8\xff\xe0\0\2" + b"\xff\xd0" * 30_000,
    "junk between segments": b"\xff\xd8" + b"\xff\xe0\0\2x" * 10_000,
    "empty PNG chunks": png.SIGNATURE + IHDR + png.chunk(b"abCd", b"") * 10_000,
    "empty IDAT chunks": png.SIGNATURE + IHDR + png.chunk(b"IDAT", b"") * 10_000,
}  # fmt: skip


@pytest.mark.fast_rows("empty scans", "EXIF and fill bytes", "junk between segments")
@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_repeated_parts_cost_no_more_than_others(content):
    require_linear(content)


def by_tensorflow(content):
    return tf.io.decode_image(content, channels=3, expand_animations=False).numpy()


def test_training_decodes_whatever_convert_accepts():
    draw, kept = Random(1), 0
    for _ in range(DECODED):
        image = accept.accepted(content := odd(draw, FILES), "a")
        if not isinstance(image, BadImage):
            found = by_tensorflow(image.encoded)
            assert found.shape == (image.height, image.width, 3), content
            # Damage of a JPEG's coefficients that stays unnoticed gives other pixels in every decoder.
            assert image.format == "jpg" or (found == array(decoded(image.encoded))).all(), content
            kept += 1
    assert kept > DECODED // 10


def test_training_decodes_whatever_validate_accepts():
    draw, passed = Random(2), 0
    files = [content for content in FILES if content.startswith((png.SIGNATURE, jpeg.START))]
    files += [saved(PHOTO.convert(mode), "PNG") for mode in ("LA", "P", "1")]
    for _ in range(DECODED):
        content = odd(draw, files)
        try:
            pixels = array(decoded(content))
        except ValueError:
            continue
        assert by_tensorflow(content).shape[:2] == pixels.shape[:2], content
        passed += 1
    assert passed > DECODED // 10


@pytest.mark.parametrize("content", FILES)
def test_training_and_validate_see_the_same_pixels(content):
    image = accept.accepted(content, "a")
    if not isinstance(image, BadImage):
        assert abs(by_tensorflow(image.encoded) - array(decoded(image.encoded)).astype(int)).max() <= ROUNDING
