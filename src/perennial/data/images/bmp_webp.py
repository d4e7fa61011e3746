"""Read the structure of BMP and WebP files in linear time, before a decoder allocates memory."""

import struct

from perennial.data.images import Refused

RUN_LENGTH = (1, 2)  # compression methods of a BMP, which Pillow decodes in Python
MOST_RUN_LENGTH_PIXELS = 1_000_000
INFO_HEADER = 40  # bytes; the older header of 12 bytes has no compression


def bmp_size(content: bytes) -> tuple[int, int]:
    """Read width and height of a BMP from its header."""
    try:
        (header,) = struct.unpack_from("<I", content, 14)
        width, height = struct.unpack_from("<HH" if header < INFO_HEADER else "<ii", content, 18)
        (compression,) = (0,) if header < INFO_HEADER else struct.unpack_from("<I", content, 30)
    except struct.error:
        raise Refused("it is incomplete: a BMP without a header") from None
    width, height = abs(width), abs(height)
    pixels = width * height
    if compression in RUN_LENGTH and (pixels > MOST_RUN_LENGTH_PIXELS or len(content) > 4 * pixels + 2**16):
        raise Refused(
            f"it is a run-length encoded BMP of {width} x {height} pixels and {len(content)} bytes, expected "
            f"at most {MOST_RUN_LENGTH_PIXELS} pixels of 4 bytes"
        )
    return width, height


def webp_size(content: bytes) -> tuple[int, int]:
    """Read width and height of a WebP from its header (RFC 9649)."""
    kind, bits = content[12:16], int.from_bytes(content[21:25], "little")
    if kind == b"VP8X":
        return 1 + int.from_bytes(content[24:27], "little"), 1 + int.from_bytes(content[27:30], "little")
    if kind == b"VP8L":
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = (int.from_bytes(content[start : start + 2], "little") & 0x3FFF for start in (26, 28))
    return width, height
