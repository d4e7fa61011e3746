"""PNG with stored pixels: the same bytes on every machine, and no time spent on compression.

Compressed sizes differ between zlib builds, so a compressed PNG would give a record file another digest on
another machine. Small images lose little by it. Source: PNG specification (W3C), RFC 1950 and RFC 1951.
"""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

GREY, RGB = 0, 2
STORED_BYTES = 0xFFFF  # the most that a stored deflate block holds


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """The PNG file of pixels uint8 [height, width] (grey) or [height, width, 3] (RGB)."""
    height, width = pixels.shape[:2]
    colour = GREY if pixels.ndim == 2 else RGB
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    lines = np.zeros((height, 1 + pixels[0].size), np.uint8)  # each line begins with filter 0: none
    lines[:, 1:] = pixels.reshape(height, -1)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", _zlib_stored(lines.tobytes())),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def _zlib_stored(content: bytes) -> bytes:
    """A zlib stream that holds the content as it is."""
    parts = [b"\x78\x01"]
    for start in range(0, len(content), STORED_BYTES):
        block = content[start : start + STORED_BYTES]
        last = start + STORED_BYTES >= len(content)
        parts += [struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF), block]
    return b"".join((*parts, struct.pack(">I", zlib.adler32(content))))
