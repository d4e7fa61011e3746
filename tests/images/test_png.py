"""PNG files: pixels come back as they were, in the same bytes everywhere."""

import hashlib
import io
import zlib

import numpy as np
import PIL.Image
import pytest

from perennial.images import png

SHAPES = [
    (1, 1),
    (8, 8),
    (28, 28),
    (3, 5),
    (5, 3),
    (1, 70_000),
    (300, 300),
    (1, 1, 3),
    (7, 4, 3),
    (200, 200, 3),
]


def image(*shape):
    size = int(np.prod(shape))
    return (np.arange(size, dtype=np.uint64) * 2_654_435_761 >> 16).astype(np.uint8).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_pixels_come_back_as_they_were(shape):
    with PIL.Image.open(io.BytesIO(png.encode(image(*shape)))) as opened:
        assert np.array_equal(np.asarray(opened), image(*shape))


@pytest.mark.parametrize(("shape", "mode"), [((4, 4), "L"), ((4, 4, 3), "RGB")])
def test_grey_stays_grey_and_colour_stays_colour(shape, mode):
    with PIL.Image.open(io.BytesIO(png.encode(image(*shape)))) as opened:
        assert (opened.format, opened.mode) == ("PNG", mode)


def test_every_chunk_has_its_checksum():
    content, position, wrong = png.encode(image(300, 300)), 8, []
    while position < len(content):
        length = int.from_bytes(content[position : position + 4])
        body = content[position + 4 : position + 8 + length]
        if zlib.crc32(body) != int.from_bytes(content[position + 8 + length : position + 12 + length]):
            wrong.append(body[:4])
        position += 12 + length
    assert (position, wrong) == (len(content), [])


def test_an_image_gives_the_same_bytes_on_every_machine():
    assert hashlib.sha256(png.encode(image(28, 28))).hexdigest() == (
        "8455db511dc1b545fbf8467274eebbabb5cab8d3496cf5f9889d69104819e399"
    )


def test_a_view_with_other_strides_is_the_same_image():
    assert png.encode(image(4, 6)[:, ::2]) == png.encode(image(4, 6)[:, ::2].copy())
