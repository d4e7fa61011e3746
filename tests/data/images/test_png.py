"""PNG files: pixels come back as they were, in the same bytes everywhere."""

import hashlib
import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from support.odd_images import saved

from perennial.data.images import png

SHAPES = [
    (1, 1), (8, 8), (28, 28), (3, 5), (5, 3), (1, 70_000), (300, 300), (1, 1, 3), (7, 4, 3), (200, 200, 3),
]  # fmt: skip


def image(*shape):
    size = int(np.prod(shape))
    return (np.arange(size, dtype=np.uint64) * 2_654_435_761 >> 16).astype(np.uint8).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_pixels_come_back_as_they_were(shape):
    encoded = png.encode(image(*shape))
    assert len(encoded) == png.encoded_bytes(*(*shape, 1)[:3])
    with PIL.Image.open(io.BytesIO(encoded)) as opened:
        assert np.array_equal(np.asarray(opened), image(*shape))
        assert (opened.format, opened.mode) == ("PNG", "RGB" if len(shape) == 3 else "L")
    decoded = tf.io.decode_image(encoded, expand_animations=False)
    assert np.array_equal(decoded.numpy().reshape(shape), image(*shape))


def test_an_image_gives_the_same_bytes_on_every_machine():
    assert hashlib.sha256(png.encode(image(28, 28))).hexdigest() == (
        "8455db511dc1b545fbf8467274eebbabb5cab8d3496cf5f9889d69104819e399"
    )


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 1), (5, 3, 3), (1, 1), (300, 300), (200, 200, 3)])
def test_many_images_are_the_files_that_each_would_be(shape):
    several = np.stack([image(*shape), image(*shape)[::-1], np.zeros(shape, np.uint8)])
    assert list(png.encode_all(several)) == [png.encode(each) for each in several]


def test_views_with_other_strides_are_the_same_files():
    several = np.stack([image(8, 6), image(8, 6)[::-1]])[:, ::2, ::3]
    assert list(png.encode_all(several)) == [png.encode(each.copy()) for each in several]
    assert png.encode(several[0]) == png.encode(several[0].copy())


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 8, 1), (7, 4, 3)])
def test_stored_pixels_are_read_without_a_decoder(shape):
    assert np.array_equal(png.stored_pixels(png.encode(image(*shape))), image(*shape))


def test_of_a_changed_or_cut_file_no_stored_pixels_are_read():
    encoded = png.encode(image(3, 4))
    for at in range(len(encoded)):
        changed = encoded[:at] + bytes([encoded[at] ^ 1]) + encoded[at + 1 :]
        assert png.stored_pixels(changed) is png.stored_pixels(encoded[:at]) is None


def test_of_a_file_of_another_program_no_stored_pixels_are_read():
    assert png.stored_pixels(saved(PIL.Image.fromarray(image(4, 4)), "PNG")) is None
