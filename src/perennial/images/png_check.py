"""Whether a PNG file is whole and sound to its last byte: Pillow reads many that are not.

Source: PNG specification (W3C), sections 5 (chunks), 7 (lines), 8 (interlacing) and 9 (filters).
"""

import struct
import zlib
from typing import NamedTuple

from perennial.images.png import SIGNATURE

CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
FILTERS = 4
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by the colour type in the header
# Column and row that each pass of an interlaced PNG begins with, and how far on the next ones are.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


class Found(NamedTuple):
    """What stands in a sound PNG file."""

    width: int
    height: int
    bits: int  # of a sample
    colour: int  # type, as in the header
    interlaced: bool
    kinds: frozenset[bytes]  # of chunks


def check(content: bytes, most_pixels: int) -> Found:
    """Checks every chunk, and the lines before their filters; that is all that can be wrong with a PNG.

    Raises:
        ValueError: it is damaged, not whole, an animation or has too many pixels; says what and where.
    """
    chunks = _chunks(content)
    kinds = [kind for kind, _ in chunks]
    _check_kinds(kinds)
    width, height, bits, colour, *methods, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if not 0 < width * height <= most_pixels:
        raise ValueError(f"it has {width} x {height} pixels, expected 1 to {most_pixels}")
    if methods != [0, 0] or interlaced > 1:
        raise ValueError(f"it is damaged: it has the methods {[*methods, interlaced]}")
    stream = b"".join(body for kind, body in chunks if kind == b"IDAT")
    try:
        _check_lines(stream, width, height, bits * SAMPLES.get(colour, 1), interlaced)
    except zlib.error as error:
        raise ValueError(f"it is damaged: {error}") from error
    return Found(width, height, bits, colour, bool(interlaced), frozenset(kinds))


def _chunks(content: bytes) -> list[tuple[bytes, memoryview]]:
    """Kind and body of the chunks up to IEND. Pillow looks at some of the checksums only."""
    chunks: list[tuple[bytes, memoryview]] = []
    position, whole = len(SIGNATURE), memoryview(content)
    while not chunks or chunks[-1][0] != b"IEND":
        if len(content) < position + 12:
            raise ValueError("it is not whole: a PNG without an end")
        length, kind = struct.unpack_from(">I4s", content, position)
        body, position = whole[position + 8 : position + 8 + length], position + 12 + length
        if position > len(content):
            raise ValueError(f"it is not whole: it ends within the chunk {kind!r}")
        if struct.unpack_from(">I", content, position - 4)[0] != zlib.crc32(body, zlib.crc32(kind)):
            raise ValueError(f"it is damaged: the checksum of the chunk {kind!r} is wrong")
        if not chunks and (kind, length) != (b"IHDR", 13):
            raise ValueError(f"it is damaged: its first chunk is {kind!r} of {length} bytes")
        if kind == b"acTL" and bytes(body[:4]) != b"\0\0\0\1":
            raise ValueError("it is an animation")
        chunks.append((kind, body))
    return chunks


def _check_kinds(kinds: list[bytes]) -> None:
    """The chunks of pixels follow each other, and none is of a kind that a reader would have to know."""
    if unknown := [kind for kind in kinds if kind[:1].isupper() and kind not in CRITICAL]:
        raise ValueError(f"it is damaged: the chunk {unknown[0]!r} is unknown")
    count = kinds.count(b"IDAT")
    if not count or kinds[kinds.index(b"IDAT") :][:count] != [b"IDAT"] * count:
        raise ValueError("it is damaged: its chunks of pixels do not follow each other")


def _check_lines(stream: bytes, width: int, height: int, bits_per_pixel: int, interlaced: int) -> None:
    """All lines are there (Pillow takes missing ones for black), and each has a filter that is known.

    Nothing else can be wrong with the pixels of a PNG, so that they need not be made.
    """
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
    line_bytes = [1 + -(-wide * bits_per_pixel // 8) for wide, _ in sizes]
    expected = sum(high * line for (wide, high), line in zip(sizes, line_bytes, strict=True) if wide > 0)
    machine = zlib.decompressobj()
    lines = machine.decompress(stream, expected + 1)  # no more: it may be a bomb
    if len(lines) != expected or not machine.eof:
        raise ValueError(f"it is damaged: its lines have {len(lines)} bytes, expected {expected}")
    if not interlaced and max(lines[:: line_bytes[0]]) > FILTERS:
        raise ValueError(f"it is damaged: a line has the filter {max(lines[:: line_bytes[0]])}")
