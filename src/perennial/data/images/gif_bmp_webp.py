"""Read the structure of GIF, BMP and WebP files in linear time, before a decoder allocates memory."""

import struct

from perennial.data.images import Refused

GIF = (b"GIF87a", b"GIF89a")
IMAGE, EXTENSION, TRAILER, GRAPHIC_CONTROL = 0x2C, 0x21, 0x3B, 0xF9
MOST_BLOCKS = 750_000  # of at most 255 bytes: 120 million incompressible pixels have as many
RUN_LENGTH = (1, 2)  # compression methods of a BMP, which Pillow decodes in Python
MOST_RUN_LENGTH_PIXELS = 1_000_000
INFO_HEADER = 40  # bytes; the older header of 12 bytes has no compression


def single_gif(content: bytes) -> tuple[tuple[int, int], bytes]:
    """The size of a GIF (GIF89a, section 7), and the file with only its image and the transparency."""
    blocks = _Blocks(content)
    try:
        width, height, flags = struct.unpack_from("<HHB", content, 6)
        at = start = 13 + _table(flags)
        control = image = b""
        while content[at] != TRAILER:
            kind, begun = content[at], at
            if kind == IMAGE:
                if image:
                    raise Refused("it is an animation")
                left, top, wide, high, flags = struct.unpack_from("<4HB", content, at + 1)
                width, height = max(width, left + wide), max(height, top + high)
                at = blocks.after(at + 11 + _table(flags))
                image = content[begun:at]
            elif kind == EXTENSION:
                at = blocks.after(at + 2)
                control = content[begun:at] if content[begun + 1] == GRAPHIC_CONTROL and not image else control
            elif kind == 0:  # some programs fill up with zeros
                blocks.count()
                at += 1
            else:
                raise Refused(f"it is damaged: its block {kind:#04x} is unknown")
    except (IndexError, struct.error):
        raise Refused("it is incomplete: a GIF without an end") from None
    if not image:
        raise Refused("it is damaged: a GIF without an image")
    return (width, height), b"".join((content[:start], control, image, b";"))


class _Blocks:
    """Walks over the data blocks of a GIF and counts them."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._left = MOST_BLOCKS

    def after(self, at: int) -> int:
        """The position after the data blocks that begin at a position."""
        while size := self._content[at]:
            self.count()
            at += 1 + size
        return at + 1

    def count(self) -> None:
        """Count a block."""
        self._left -= 1
        if self._left < 0:
            raise Refused(f"it is damaged: a GIF of more than {MOST_BLOCKS} blocks")


def _table(flags: int) -> int:
    """Size in bytes of the colour table that flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


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
