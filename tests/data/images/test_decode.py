"""What an encoded image says of itself, and its pixels: every byte of the file counts."""

import struct
import zlib

import numpy as np
import PIL.Image
import pytest
from support.odd_images import saved

from perennial.data.images import decode, png
from perennial.data.images.decode import Header, header
from perennial.data.images.jpeg import END, segments

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
def test_a_png_gives_its_pixels_and_every_flipped_bit_of_it_is_refused(encoded):
    assert np.array_equal(pixels(encoded), PIXELS)
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


def of_mode(kind, mode="RGB", **options):
    return saved(PIL.Image.new(mode, (5, 3)), kind, **options)


EXIF = PIL.Image.Exif()
EXIF[0x0112], EXIF[0x010E] = 6, "x" * 3000
PNG_CHANNELS = {"L": 1, "RGB": 3, "P": 3, "LA": 2, "RGBA": 4, "1": 1, "I;16": 1}
HEADERS = {
    f"PNG {mode}": (of_mode("PNG", mode), Header("png", 3, 5, PNG_CHANNELS[mode])) for mode in PNG_CHANNELS
}
HEADERS |= {
    f"JPEG {mode} {progressive}": (
        of_mode("JPEG", mode, progressive=progressive),
        Header("jpg", 3, 5, channels),
    )
    for mode, channels in (("L", 1), ("RGB", 3), ("CMYK", 4))
    for progressive in (False, True)
}
HEADERS |= {
    "much before the frame": (of_mode("JPEG", exif=EXIF, comment=b"\xff\xc0" * 100), Header("jpg", 3, 5, 3)),
    "fill bytes": (of_mode("JPEG").replace(b"\xff\xd8", b"\xff\xd8" + b"\xff" * 5, 1), Header("jpg", 3, 5, 3)),
}


@pytest.mark.parametrize(("content", "expected"), HEADERS.values(), ids=HEADERS)
def test_an_image_says_its_size_and_channels_and_is_8_bit_grey_or_rgb(content, expected):
    found = pixels(content)
    assert (header(content), found.shape, found.dtype) == (expected, expected.size, np.uint8)


OTHERS = {kind: of_mode(kind) for kind in ("GIF", "BMP", "TIFF", "WEBP")} | {
    "no known colour": of_mode("PNG")[:25] + b"\5" + of_mode("PNG")[26:],
    "no length": b"\xff\xd8" + b"\xff\xe0\x00\x00" * 100_000,  # which does not hold the reader up
    "longer than the file": b"\xff\xd8\xff\xe0" + struct.pack(">H", 0xFFFF) + bytes(100),
    **{repr(start): start for start in (b"", b"\x89PNG", b"\xff\xd8\xff", b"\xff\xd8\xff\xe0", b"\xff" * 100)},
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_what_is_no_jpeg_or_png_has_no_header(content):
    assert header(content) is None


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_cut_image_has_its_own_header_or_none(kind):
    encoded = of_mode(kind)
    assert {header(encoded[:size]) for size in range(len(encoded))} <= {None, header(encoded)}


ENDED = (b"\xff\xd9", b"\xff\xff\xd9 and a trailer", b"\xff\xda\x00\x02\x01\xff\xd9")  # the last after a scan
CUT = (b"\xff\x00\xd9", b"\xff\xd0\xd9", b"\xff\xfe\x00\x04\xff\xd9", b"\xff", b"")  # the third in a comment


@pytest.mark.parametrize("data", [0, 1, 255, 1 << 16])
@pytest.mark.parametrize(("after", "complete"), [(each, each in ENDED) for each in ENDED + CUT])
def test_the_end_of_a_jpeg_is_found_wherever_its_scan_data_end(data, after, complete):
    found = list(segments(b"\xff\xd8\xff\xda\x00\x02" + b"\x01" * data + after))
    assert (found[-1].marker == END) is complete
