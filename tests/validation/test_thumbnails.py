import base64
import io

import numpy as np
import PIL.Image
import pytest
from perennial.validation.thumbnails import Thumbnail, thumbnail

from perennial.images import Image, png


def image(encoded, kind="png"):
    return Image(encoded=encoded, format=kind, height=1, width=1)


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def jpeg(*shape):
    stream = io.BytesIO()
    PIL.Image.fromarray(noise(*shape)).save(stream, "JPEG")
    return stream.getvalue()


def content(shown):
    return base64.b64decode(shown.uri.partition(",")[2])


@pytest.mark.parametrize(
    ("encoded", "kind", "size"),
    [
        (png.encode(noise(28, 28)), "image/png", (84, 84, True)),
        (png.encode(noise(32, 16, 3)), "image/png", (48, 96, True)),
        (jpeg(100, 90, 3), "image/jpeg", (90, 100, False)),
    ],
)
def test_a_small_image_is_embedded_as_it_is(encoded, kind, size):
    shown = thumbnail(image(encoded))
    assert content(shown) == encoded
    assert shown.uri.startswith(f"data:{kind};base64,")
    assert (shown.width, shown.height, shown.pixelated) == size


@pytest.mark.parametrize(
    ("encoded", "size"),
    [
        (jpeg(300, 600, 3), (112, 56)),
        (png.encode(noise(600, 300)), (56, 112)),
        (png.encode(noise(2, 400)), (112, 1)),
        (png.encode(noise(128, 128, 3)), (112, 112)),
    ],
)
def test_a_large_image_becomes_small_in_its_proportions(encoded, size):
    shown = thumbnail(image(encoded))
    assert (shown.width, shown.height, shown.pixelated) == (*size, False)
    assert max(PIL.Image.open(io.BytesIO(content(shown))).size) == 128


def test_equal_images_have_equal_thumbnails():
    assert thumbnail(image(jpeg(300, 200, 3))) == thumbnail(image(jpeg(300, 200, 3)))


@pytest.mark.parametrize("encoded", [b"", b"no image", jpeg(300, 200, 3)[:2000], b"<svg/>"])
def test_what_does_not_decode_has_a_placeholder(encoded):
    assert thumbnail(image(encoded)) == Thumbnail(None, 84, 84)
