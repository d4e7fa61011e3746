"""What an encoded image says of itself, without decoding it."""

import struct

import PIL.Image
import pytest
from support import odd_images

from perennial.data.images.header import Header, header
from perennial.data.images.jpeg import END, segments


def saved(kind, mode="RGB", **options):
    return odd_images.saved(PIL.Image.new(mode, (5, 3)), kind, **options)


def exif():
    found = PIL.Image.Exif()
    found[0x0112] = 6
    found[0x010E] = "x" * 3000
    return found


@pytest.mark.parametrize(
    ("mode", "channels"), [("L", 1), ("RGB", 3), ("P", 3), ("LA", 2), ("RGBA", 4), ("1", 1), ("I;16", 1)]
)
def test_a_png_says_its_size_and_channels(mode, channels):
    assert header(saved("PNG", mode)) == Header("png", 3, 5, channels)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("CMYK", 4)])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_says_its_size_and_channels(mode, channels, progressive):
    assert header(saved("JPEG", mode, progressive=progressive)) == Header("jpg", 3, 5, channels)


def test_a_jpeg_with_much_before_its_frame_is_read():
    assert header(saved("JPEG", exif=exif(), comment=b"\xff\xc0" * 100)) == Header("jpg", 3, 5, 3)


def test_fill_bytes_before_a_marker_are_passed_over():
    encoded = saved("JPEG")
    assert header(encoded[:2] + b"\xff" * 5 + encoded[2:]) == Header("jpg", 3, 5, 3)


OTHERS = {kind: saved(kind) for kind in ("GIF", "BMP", "TIFF", "WEBP")} | {
    "no known colour": saved("PNG")[:25] + b"\5" + saved("PNG")[26:],
    "no length": b"\xff\xd8" + b"\xff\xe0\x00\x00" * 100_000,  # which does not hold the reader up
    "longer than the file": b"\xff\xd8\xff\xe0" + struct.pack(">H", 0xFFFF) + bytes(100),
    **{repr(start): start for start in (b"", b"\x89PNG", b"\xff\xd8\xff", b"\xff\xd8\xff\xe0", b"\xff" * 100)},
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_what_is_no_jpeg_or_png_has_no_header(content):
    assert header(content) is None


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_cut_image_has_its_own_header_or_none(kind):
    encoded = saved(kind)
    assert {header(encoded[:size]) for size in range(len(encoded))} <= {None, header(encoded)}


ENDED = (b"\xff\xd9", b"\xff\xff\xd9 and a trailer", b"\xff\xda\x00\x02\x01\xff\xd9")  # the last after a scan
CUT = (b"\xff\x00\xd9", b"\xff\xd0\xd9", b"\xff\xfe\x00\x04\xff\xd9", b"\xff", b"")  # the third in a comment


@pytest.mark.parametrize("data", [0, 1, 255, 1 << 16])
@pytest.mark.parametrize(("after", "complete"), [(each, each in ENDED) for each in ENDED + CUT])
def test_the_end_of_a_jpeg_is_found_wherever_its_scan_data_end(data, after, complete):
    found = list(segments(b"\xff\xd8\xff\xda\x00\x02" + b"\x01" * data + after))
    assert (found[-1].marker == END) is complete
