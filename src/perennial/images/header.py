"""What an encoded image says of itself before it is decoded."""

import struct
from functools import lru_cache
from typing import NamedTuple

PNG_START = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by colour type; a palette stands for RGB
JPEG_START, JPEG_SCAN, JPEG_END = b"\xff\xd8\xff", b"\xff\xda", b"\xff\xd9"
# Start-of-frame markers; DHT, JPG and DAC share their range.
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
JPEG_CHANNELS = (1, 3, 4)
JPEG_BARE = frozenset((*range(0xD0, 0xD9), 0x01))  # markers without a length


class Header(NamedTuple):
    """Format, size in pixels and channels of an image file."""

    format: str  # png or jpg
    height: int
    width: int
    channels: int


def header(encoded: bytes) -> Header | None:
    """What stands in the header of a PNG or JPEG file; None where it is neither or has no whole header.

    Source: PNG specification (W3C); ITU T.81, annex B.
    """
    if encoded.startswith(JPEG_START):
        return _jpeg(encoded)
    return _png(encoded[:26])


@lru_cache(maxsize=4096)
def _png(start: bytes) -> Header | None:
    if len(start) != 26 or not start.startswith(PNG_START):
        return None
    width, height, _, colour = struct.unpack_from(">IIBB", start, len(PNG_START))
    return Header("png", height, width, PNG_CHANNELS[colour]) if colour in PNG_CHANNELS else None


def has_end(jpeg: bytes) -> bool:
    """Whether the end of a JPEG follows its last scan, which TensorFlow asks for and Pillow does not.

    Neither marker can stand in the data of a scan, where a zero follows every 0xFF.
    """
    end = jpeg.rfind(JPEG_END)
    return end >= 0 and jpeg.find(JPEG_SCAN, end) < 0


def _jpeg(encoded: bytes) -> Header | None:
    at, end = 2, len(encoded) - 9
    while at < end and encoded[at] == 0xFF:
        marker = encoded[at + 1]
        if marker in JPEG_FRAMES:
            height, width, channels = struct.unpack_from(">HHB", encoded, at + 5)
            return Header("jpg", height, width, channels) if channels in JPEG_CHANNELS else None
        if marker == 0xFF:
            at += 1
        elif marker in JPEG_BARE:
            at += 2
        else:
            at += 2 + struct.unpack_from(">H", encoded, at + 2)[0]
    return None
