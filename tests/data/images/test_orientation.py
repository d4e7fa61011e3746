"""EXIF orientation: what `convert` stores and what `predict` decodes are the same upright photograph."""

import io

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf
from support.odd_images import saved
from support.raw import picture

from perennial.data.images import Image
from perennial.data.images.accept import accepted
from perennial.model.inference import image_inputs

PHOTO = PIL.Image.fromarray(picture(1, 48)[:32])
FORMATS = ("JPEG", "PNG", "WEBP", "MPO")


def oriented(orientation, kind="JPEG", image=PHOTO):
    """A photograph as a camera in that position saves it."""
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    return saved(image, kind, exif=exif, **({"quality": 90} if kind in {"JPEG", "MPO"} else {"lossless": True}))


def upright(content):
    """What a viewer shows, float [height, width, 3]."""
    with PIL.Image.open(io.BytesIO(content)) as opened:
        return np.asarray(PIL.ImageOps.exif_transpose(opened).convert("RGB"), float)


def predicted_on(image):
    (source,) = image_inputs.from_values(image)
    return source.read(image_inputs.PixelBudget(), "drop")


def trained_on(encoded):
    return tf.io.decode_image(encoded, channels=3, expand_animations=False).numpy().astype(float)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_convert_stores_photographs_upright_and_predict_sees_the_same(orientation, kind):
    content = oriented(orientation, kind)
    stored = accepted(content, "a")
    assert isinstance(stored, Image)
    shown, pixels = upright(content), trained_on(stored.encoded)
    assert pixels.shape == shown.shape == (stored.height, stored.width, 3)
    assert np.abs(pixels - shown).mean() < 2  # a JPEG is encoded again
    assert predicted_on(content) == stored.encoded
    with PIL.Image.open(io.BytesIO(content)) as opened:
        given = trained_on(predicted_on(opened))
    assert np.abs(given - shown).mean() == 0


def test_a_grey_photograph_stays_grey():
    stored = accepted(oriented(6, image=PHOTO.convert("L")), "a")
    assert tf.io.decode_jpeg(stored.encoded).shape == (48, 32, 1)


@pytest.mark.parametrize("orientation", [0, 1, 9, 77])
def test_an_upright_jpeg_is_kept_byte_for_byte(orientation):
    content = oriented(orientation)
    assert accepted(content, "a").encoded == content == predicted_on(content)


def test_a_jpeg_that_is_stored_upright_is_not_rotated_again():
    stored = accepted(oriented(6), "a")
    assert accepted(stored.encoded, "a").encoded == stored.encoded
