"""Images that are larger than a data set wants them."""

import io

import numpy as np
import PIL.Image
import pytest
from support.odd_images import saved

from perennial.data.images import Annotations, BadImage, Image, accept

COARSE = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
PHOTO = PIL.Image.fromarray(COARSE).resize((400, 300), PIL.Image.Resampling.BICUBIC)


def encoded(mode, kind, **options):
    return saved(PHOTO.convert(mode), kind, **options)


def opened(content):
    return PIL.Image.open(io.BytesIO(content))


@pytest.mark.parametrize(("kind", "name"), [("JPEG", "jpg"), ("PNG", "png")])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_the_longer_side_is_at_most_as_asked(kind, name, mode):
    image = accept.accepted(encoded(mode, kind), "a")
    found = accept.limited(image, 64)
    picture = opened(found.encoded)
    assert (found.format, found.height, found.width) == (name, 48, 64)
    assert (picture.format, picture.mode, picture.size) == (kind, mode, (64, 48))
    whole = opened(image.encoded).resize((64, 48), PIL.Image.Resampling.LANCZOS)
    difference = np.abs(np.asarray(picture, float) - np.asarray(whole, float))
    assert difference.mean() < 4


def test_a_rotated_photograph_is_reduced_upright():
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    image = accept.accepted(encoded("RGB", "JPEG", exif=exif), "a")
    found = accept.limited(image, 80)
    assert (found.height, found.width) == opened(found.encoded).size[::-1] == (80, 60)


@pytest.mark.parametrize("most", [400, 5000])
def test_an_image_that_is_no_larger_keeps_its_bytes(most):
    image = accept.accepted(encoded("RGB", "JPEG"), "a")
    assert accept.limited(image, most) is image
    assert accept.smaller(image.encoded, most) is image.encoded


def test_the_shorter_side_has_a_pixel_at_least():
    content = saved(PIL.Image.new("L", (5000, 3)), "PNG")
    assert opened(accept.smaller(content, 64)).size == (64, 1)


def test_areas_are_those_in_the_reduced_image():
    image = accept.accepted(encoded("RGB", "PNG"), "a")
    found = accept.limited(image._replace(annotations=Annotations(areas=(400.0,))), 100)
    assert found.annotations.areas == (25.0,)


def test_a_damaged_image_is_a_bad_one():
    content = encoded("RGB", "JPEG")
    image = Image(encoded=content[: len(content) // 2], format="jpg", height=300, width=400, filename="a")
    assert isinstance(accept.limited(image, 64), BadImage)
