"""Encoded images into pixels: every byte of the file counts."""

import struct
import zlib

import numpy as np
import PIL.Image
import pytest
from support.odd_images import saved

from perennial.data.images import decode, png

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)


def pixels(encoded):
    return decode.array(decode.decoded(encoded))


def refused(encoded):
    try:
        decode.decoded(encoded)
    except ValueError:
        return True
    return False


OWN = png.encode(PIXELS)
COMPRESSED = saved(PIL.Image.fromarray(PIXELS), "PNG")
JPEG = saved(PIL.Image.fromarray(PIXELS), "JPEG")


@pytest.mark.parametrize("encoded", [OWN, COMPRESSED], ids=["stored", "compressed"])
def test_a_colour_png_gives_its_pixels(encoded):
    assert np.array_equal(pixels(encoded), PIXELS)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("CMYK", 3)])
def test_a_jpeg_is_grey_or_rgb(mode, channels):
    assert pixels(saved(PIL.Image.new(mode, (5, 6)), "JPEG")).shape == (6, 5, channels)


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("LA", 1), ("P", 3), ("RGBA", 3), ("I;16", 1)])
def test_other_pngs_are_8_bit_grey_or_rgb(mode, channels):
    found = pixels(saved(PIL.Image.new(mode, (5, 6)), "PNG"))
    assert (found.shape, found.dtype) == ((6, 5, channels), np.uint8)


@pytest.mark.parametrize("encoded", [OWN, COMPRESSED], ids=["stored", "compressed"])
def test_every_flipped_bit_of_a_png_is_refused(encoded):
    silent = []
    for bit in range(8 * len(encoded)):
        changed = bytearray(encoded)
        changed[bit // 8] ^= 1 << bit % 8
        if not refused(bytes(changed)):
            silent.append(bit // 8)
    assert sorted(set(silent)) == []


@pytest.mark.parametrize("encoded", [OWN, COMPRESSED, JPEG], ids=["stored", "compressed", "JPEG"])
def test_every_cut_of_an_image_is_refused(encoded):
    assert [size for size in range(len(encoded) - 2) if not refused(encoded[:size])] == []


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_other_formats_are_refused(kind):
    with pytest.raises(ValueError, match="neither PNG nor JPEG"):
        decode.decoded(saved(PIL.Image.fromarray(PIXELS), kind))


def test_a_png_that_claims_too_many_pixels_is_refused():
    header = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    bomb = OWN[:8] + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + COMPRESSED[33:]
    with pytest.raises(ValueError, match="60000 x 60000 pixels, expected 1 to"):
        decode.decoded(bomb)


def test_damaged_metadata_do_not_matter_as_in_training():
    late = png.chunk(b"iCCP", b"x\0")
    assert np.array_equal(pixels(COMPRESSED[:-12] + late + COMPRESSED[-12:]), PIXELS)
