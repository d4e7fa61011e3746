"""Read the header of an encoded image without decoding it."""

import struct
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from perennial.data.images import Refused, jpeg

PNG_START = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by colour type; a palette stands for RGB
JPEG_CHANNELS = (1, 3, 4)


class Header(NamedTuple):
    """Format, size in pixels and channels of an image file."""

    format: str  # png or jpg
    height: int
    width: int
    channels: int

    @property
    def size(self) -> tuple[int, int, int]:
        """Height, width and channels after decoding, which drops alpha and converts CMYK to RGB."""
        return self.height, self.width, 1 if self.channels < 3 else 3


def header(encoded: bytes) -> Header | None:
    """Read the header of a PNG or JPEG file; None if it is neither or its header is incomplete."""
    if encoded.startswith(jpeg.START):
        return _jpeg(encoded)
    return _png(encoded[:26])


@lru_cache(maxsize=4096)
def _png(start: bytes) -> Header | None:
    if len(start) != 26 or not start.startswith(PNG_START):
        return None
    width, height, _, colour = struct.unpack_from(">IIBB", start, len(PNG_START))
    return Header("png", height, width, PNG_CHANNELS[colour]) if colour in PNG_CHANNELS else None


def _jpeg(encoded: bytes) -> Header | None:
    with suppress(Refused):
        for segment in jpeg.segments(encoded):
            if segment.marker in jpeg.FRAMES:
                if segment.body + 6 > len(encoded):
                    return None
                height, width, channels = struct.unpack_from(">HHB", encoded, segment.body + 1)
                return Header("jpg", height, width, channels) if channels in JPEG_CHANNELS else None
    return None
