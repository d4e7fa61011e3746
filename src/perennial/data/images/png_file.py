"""Check PNG files of any origin in linear time, and prepare them for a decoder.

Source: PNG specification (W3C), sections 5 (chunks), 7 (lines), 8 (interlacing), 9 (filters), 10 (compression).
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from isal.isal_zlib import crc32

from perennial.data.images import Refused, check_size, orientation
from perennial.data.images.png import COLOURS, SIGNATURE, chunk

BEFORE_PIXELS = {b"IHDR", b"PLTE", b"tRNS"}  # what decoders need besides the pixels
CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
FILTERS = 4
PALETTE = 3  # colour type
WITH_ALPHA = {4, 6}  # colour types
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # per pixel, by the colour type in the header
# First column and row of each pass of an interlaced PNG, then the column and row steps.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
MOST_CHUNKS = 2**17  # enough for 120 million pixels in the 8 KB chunks of most encoders
MOST_METADATA = 2**15  # bytes in a record; TensorFlow unpacks all texts and profiles, up to 1000 times as large
MOST_UNPACKED = 2**20  # of a text that may hold the orientation
SMALL_PARTS = 64  # chunks that Pillow reads without noticeable cost
PIECE = 2**16  # bytes that are decompressed at once
LINES = 2**20  # bytes of lines that are decompressed at once
WIDEST_WINDOW = 15  # bits


class _Chunk(NamedTuple):
    kind: bytes
    start: int  # of its content
    stop: int


@dataclass
class Png:
    """What a valid file says, and where its parts are."""

    width: int
    height: int
    bits: int  # per sample
    colour: int  # type, as in the header
    transparent: bool
    metadata: int  # bytes of chunks that a decoder does not need
    orientation: int  # as in EXIF, 1 to 8
    window: bool  # whether distances stay in the window that the header declares; libpng requires it
    needed: Sequence[_Chunk]  # before the pixels
    data: Sequence[_Chunk]

    @property
    def plain(self) -> bool:
        """Whether its pixels are what a record holds: 8-bit grey or RGB, upright, opaque, for any decoder."""
        gray_or_rgb = self.bits == 8 and self.colour in COLOURS.values() and not self.transparent
        return gray_or_rgb and self.window and self.orientation == orientation.UPRIGHT

    @property
    def kept(self) -> bool:
        """Whether a record keeps the file byte for byte."""
        return self.plain and self.metadata <= MOST_METADATA

    def key(self, content: bytes) -> tuple[int, ...]:
        """The samples of the transparent colour of a grey or RGB file, if it has one."""
        found = next((each for each in self.needed if each.kind == b"tRNS"), None)
        count = SAMPLES[self.colour] if self.colour in COLOURS.values() else 0
        if found is None or not count or found.stop - found.start < 2 * count:
            return ()
        return struct.unpack_from(f">{count}H", content, found.start)

    def for_decoder(self, content: bytes) -> bytes:
        """The file without metadata, in few chunks."""
        if not self.metadata and len(self.data) <= SMALL_PARTS:
            return content
        needed = [chunk(kind, content[start:stop]) for kind, start, stop in self.needed]
        data = b"".join([content[start:stop] for _, start, stop in self.data])
        return b"".join((SIGNATURE, *needed, chunk(b"IDAT", data), chunk(b"IEND", b"")))


def check(content: bytes) -> Png:
    """Check every byte of a PNG file: all chunks and the filtered lines. Pillow ignores much damage."""
    needed: list[_Chunk] = []
    data: list[_Chunk] = []
    metadata, last, exif, xmp = 0, b"", None, None
    seen: set[bytes] = set()
    for each in _chunks(content):
        kind, start, stop = each
        if kind == b"IDAT":
            if data and last != b"IDAT":
                raise Refused("it is damaged: its IDAT chunks are missing or not consecutive")
            data.append(each)
        elif kind == b"IEND":
            break
        else:
            if kind == b"PLTE" and kind in seen:
                raise Refused("it is damaged: it has the chunk b'PLTE' twice")
            needed += [each] if kind in BEFORE_PIXELS and not data else []
            metadata += 0 if kind in CRITICAL else 12 + stop - start
            exif = _exif(content, each) if exif is None else exif
            xmp = _text(content, each, b"XML:com.adobe.xmp") if xmp is None else xmp
        last = kind
        seen.add(kind)
    if not data:
        raise Refused("it is damaged: its IDAT chunks are missing or not consecutive")
    size = content[needed[0].start : needed[0].stop]
    width, height, bits, colour, *methods, interlaced = struct.unpack(">IIBBBBB", size)
    check_size(width, height)
    if methods != [0, 0] or interlaced > 1:
        raise Refused(f"it is damaged: it has the methods {[*methods, interlaced]}")
    _check_palette(needed, colour)
    lines = _Lines(width, height, bits * SAMPLES.get(colour, 1), interlaced=interlaced)
    try:
        lines.check(content, data)
    except zlib.error as error:
        raise Refused(f"it is damaged: {error}") from error
    window = lines.in_window(content, data)
    turned = orientation.of(exif, xmp)
    return Png(width, height, bits, colour, b"tRNS" in seen, metadata, turned, window, needed, data)


def rewritten(content: bytes) -> bytes:
    """The same pixels in a file of only its header and its compressed lines, which are copied as they are."""
    found = check(content)
    if not found.plain:
        raise Refused("it is not an opaque, upright PNG of 8 bits, grey or RGB")
    packed = b"".join([content[start:stop] for _, start, stop in found.data])
    header, lines = found.needed[0], packed[: _end(packed)]
    begin = chunk(header.kind, content[header.start : header.stop])
    return b"".join((SIGNATURE, begin, chunk(b"IDAT", lines), chunk(b"IEND", b"")))


def _end(packed: bytes) -> int:
    """Where a compressed stream ends; other bytes may follow."""
    stream = zlib.decompressobj()
    for start in range(0, len(packed), PIECE):
        piece = packed[start : start + PIECE]
        rest: bytes = piece
        while rest and not stream.eof:
            stream.decompress(rest, LINES)
            rest = stream.unconsumed_tail
        if stream.eof:
            return start + len(piece) - len(stream.unused_data)
    return len(packed)


def is_plain(content: bytes) -> bool:
    """Whether a PNG is opaque and its header names the widest window; reads only what is before the pixels."""
    colour, opaque = content[25], True
    for kind, start, stop in _chunks(content):
        opaque &= kind != b"tRNS"
        if kind == b"IDAT" and stop > start:
            return opaque and colour not in WITH_ALPHA and (content[start] >> 4) + 8 == WIDEST_WINDOW
    return False


def _chunks(content: bytes) -> Iterator[_Chunk]:
    """Yield the chunks up to IEND and verify all checksums; Pillow verifies only some."""
    position, whole = len(SIGNATURE), memoryview(content)
    for number in range(MOST_CHUNKS):
        if len(content) < position + 12:
            raise Refused("it is incomplete: a PNG without an end")
        length, kind = struct.unpack_from(">I4s", content, position)
        start, stop = position + 8, position + 8 + length
        position = stop + 4
        if position > len(content):
            raise Refused(f"it is incomplete: it ends within the chunk {kind!r}")
        if struct.unpack_from(">I", content, stop)[0] != crc32(whole[start - 4 : stop]):
            raise Refused(f"it is damaged: the checksum of the chunk {kind!r} is wrong")
        if number == 0 and (kind, length) != (b"IHDR", 13):
            raise Refused(f"it is damaged: its first chunk is {kind!r} of {length} bytes")
        if number and kind == b"IHDR":
            raise Refused("it is damaged: it has the chunk b'IHDR' twice")
        if not kind.isalpha() or (kind[:1].isupper() and kind not in CRITICAL):
            raise Refused(f"it is damaged: the chunk {kind!r} is unknown")
        if kind == b"acTL" and content[start : start + 4] != b"\0\0\0\1":
            raise Refused("it is an animation")
        yield _Chunk(kind, start, stop)
        if kind == b"IEND":
            return
    raise Refused(f"it is damaged: a PNG of more than {MOST_CHUNKS} chunks")


def _check_palette(needed: Sequence[_Chunk], colour: int) -> None:
    """Check that there is a palette where there must be one, and that libpng accepts it."""
    size = next((each.stop - each.start for each in needed if each.kind == b"PLTE"), None)
    if size is None and colour != PALETTE:
        return
    if not size or size % 3 or size > 3 * 256:
        raise Refused(f"it is damaged: its palette has {size or 0} bytes, expected 3 to 768")


class _Lines:
    """The filtered lines of an image, as the compressed stream must hold them."""

    def __init__(self, width: int, height: int, bits_per_pixel: int, *, interlaced: int) -> None:
        passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
        self._parts: list[tuple[int, int, int]] = []  # start and end of each pass, bytes of its lines
        self.bytes = 0
        for x, y, dx, dy in passes:
            wide, high = -(-(width - x) // dx), -(-(height - y) // dy)
            if wide > 0 and high > 0:
                line = 1 + -(-wide * bits_per_pixel // 8)
                self._parts.append((self.bytes, self.bytes + high * line, line))
                self.bytes += high * line

    def check(self, content: bytes, data: Sequence[_Chunk]) -> None:
        """Check that all lines exist (Pillow treats missing ones as black), and that their filters are known.

        PNG pixels can have no other error, so they need not be reconstructed.
        """
        found, stream = 0, zlib.decompressobj()
        for lines in _unpacked(stream, content, data, LINES):
            for start, stop, line in self._parts:
                first = max(start, start + -(-(found - start) // line) * line)
                filters = lines[first - found : max(stop - found, 0) : line]
                if filters and max(filters) > FILTERS:
                    raise Refused(f"it is damaged: a line has the filter {max(filters)}")
            found += len(lines)
            if found > self.bytes:  # not more: it may be a decompression bomb
                break
        if found != self.bytes or not stream.eof:
            raise Refused(f"it is damaged: its lines have {found} bytes, expected {self.bytes}")

    def in_window(self, content: bytes, data: Sequence[_Chunk]) -> bool:
        """Whether distances stay in the window that the header declares, as libpng, unlike Pillow, requires."""
        first = next(each.start for each in data if each.stop > each.start)
        bits = (content[first] >> 4) + 8
        if bits == WIDEST_WINDOW or self.bytes <= 1 << bits:
            return True
        stream = zlib.decompressobj(bits)
        try:
            return sum(map(len, _unpacked(stream, content, data, self._parts[-1][2]))) == self.bytes
        except zlib.error:
            return False


def _unpacked(stream: "zlib._Decompress", content: bytes, data: Sequence[_Chunk], most: int) -> Iterator[bytes]:
    """Decompress the content of chunks to pieces of at most `most` bytes."""
    # The rest of a piece is copied after each step, so that pieces must not be larger than a few lines.
    whole, size = memoryview(content), min(PIECE, most)
    for _, start, stop in data:
        for position in range(start, stop, size):
            rest: bytes | memoryview = whole[position : min(position + size, stop)]
            while len(rest) and not stream.eof:
                yield stream.decompress(rest, most)
                rest = stream.unconsumed_tail


def _exif(content: bytes, each: _Chunk) -> bytes | None:
    """The EXIF block that a chunk holds; ImageMagick writes it as text in hexadecimal."""
    if each.kind == b"eXIf":
        return content[each.start : each.stop]
    if (text := _text(content, each, b"Raw profile type exif")) is None:
        return None
    try:
        return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:]))
    except ValueError:
        return b""


def _text(content: bytes, each: _Chunk, name: bytes) -> bytes | None:
    """The text of this name in a chunk of text; empty if it cannot be unpacked."""
    kind, start, stop = each
    if kind not in {b"tEXt", b"zTXt", b"iTXt"} or not content.startswith(name + b"\0", start, stop):
        return None
    text = content[start + len(name) + 1 : stop]
    packed = kind == b"zTXt"
    if kind == b"iTXt":  # flag and method of compression, two more texts
        packed, text = text[:1] == b"\1", text[2:].split(b"\0", 2)[-1]
    elif packed:
        text = text[1:]
    try:
        return zlib.decompressobj().decompress(text, MOST_UNPACKED) if packed else text
    except zlib.error:
        return b""
