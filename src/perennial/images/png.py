"""Write PNG files with uncompressed pixels, identical on every machine; check PNG files of any origin.

Compressed bytes differ between zlib builds, so a record file of compressed PNGs would have different digests on
different machines. Small images grow only a little. Source: PNG specification (W3C), RFC 1950 and RFC 1951.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from isal.isal_zlib import adler32, crc32
from numpy.typing import NDArray

from perennial.images import Refused, check_size

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = {1: 0, 3: 2}  # channels: colour type, grey and RGB
STORED_BYTES = 0xFFFF  # maximum size of a stored deflate block
CHECKSUM = struct.Struct(">I")
DATA_AT = len(SIGNATURE) + 25 + 8  # of IDAT's content: after the signature, IHDR and IDAT's length and name
CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
FILTERS = 4
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # per pixel, by the colour type in the header
# First column and row of each pass of an interlaced PNG, then the column and row steps.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


@dataclass(frozen=True)
class _Frame:
    """The bytes around the pixels of one image size, for pixels that fit into a single block."""

    head: bytes
    tail: bytes
    lines: tuple[int, int]  # height, bytes of a line with its filter byte
    shape: tuple[int, int, int]
    begun: int  # CRC-32 of IDAT's name and the bytes before the lines

    def around(self, content: bytes) -> bytes:
        """Build the file from its content: the lines, each with a leading filter byte."""
        adler = CHECKSUM.pack(adler32(content))
        checksum = CHECKSUM.pack(crc32(adler, crc32(content, self.begun)))
        return b"".join((self.head, content, adler, checksum, self.tail))

    def checksums(self, contents: Sequence[bytes]) -> NDArray[np.uint8]:
        """Compute the checksums that follow each content: Adler-32 and CRC-32, uint8 [N, 8]."""
        adlers = [adler32(content) for content in contents]
        begun = [crc32(content, self.begun) for content in contents]
        found = np.empty((len(contents), 2), ">u4")
        found[:, 0] = adlers
        packed = found[:, 0].tobytes()
        found[:, 1] = [crc32(packed[4 * n : 4 * n + 4], crc) for n, crc in enumerate(begun)]
        return found.view(np.uint8)

    @property
    def bytes(self) -> int:
        return len(self.head) + self.lines[0] * self.lines[1] + 8 + len(self.tail)


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """Encode pixels uint8 [height, width] (grey) or [height, width, 1 or 3] (grey or RGB) as PNG."""
    height, width, channels = (*pixels.shape, 1)[:3]
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each line begins with filter 0: none
    lines[:, 1:] = pixels.reshape(height, -1)
    content = lines.tobytes()
    if len(content) <= STORED_BYTES:
        return _frame(height, width, channels).around(content)
    data = _chunk(b"IDAT", _zlib_stored(content))
    return b"".join((SIGNATURE, _header(height, width, channels), data, _chunk(b"IEND", b"")))


def encode_all(images: NDArray[np.uint8]) -> Iterator[bytes]:
    """Encode images uint8 [N, height, width (, 1 or 3)] like `encode`."""
    size = file_bytes(images.shape)
    if size is None:
        yield from map(encode, images)
        return
    files = np.empty((len(images), size), np.uint8)
    encode_into(files, images)
    yield from (file.tobytes() for file in files)


def file_bytes(shape: tuple[int, ...]) -> int | None:
    """Return the size of the files that `encode_into` writes for images [N, height, width (, 1 or 3)].

    None if a single block cannot hold their pixels.
    """
    height, width, channels = (*shape[1:], 1)[:3]
    fits = 0 < height * (1 + width * channels) <= STORED_BYTES
    return encoded_bytes(height, width, channels) if fits else None


def encode_into(files: NDArray[np.uint8], images: NDArray[np.uint8]) -> None:
    """Encode images of one size like `encode`, into rows [N, file_bytes].

    The rows may be slices of longer ones.
    """
    frame = _frame(*(*images.shape[1:], 1)[:3])
    start, stop = len(frame.head), frame.bytes - len(frame.tail) - 2 * CHECKSUM.size
    files[:, :start] = np.frombuffer(frame.head, np.uint8)
    files[:, stop + 2 * CHECKSUM.size :] = np.frombuffer(frame.tail, np.uint8)
    lines = files[:, start:stop].reshape(-1, *frame.lines)
    lines[:, :, 0] = 0
    pixels = lines[:, :, 1:].reshape(-1, *frame.shape)
    # Copy channel by channel: four times as fast for a planar source.
    for channel, plane in enumerate(np.moveaxis(images.reshape(pixels.shape), 3, 0)):
        pixels[..., channel] = plane
    files[:, stop : stop + 2 * CHECKSUM.size] = frame.checksums([row.tobytes() for row in files[:, start:stop]])


def encoded_bytes(height: int, width: int, channels: int) -> int:
    """Return the size of the PNG file that `encode` writes."""
    content = height * (1 + width * channels)
    blocks = max(-(-content // STORED_BYTES), 1)
    return DATA_AT + 2 + 5 * blocks + content + 4 + 4 + 12


def stored_pixels(encoded: bytes) -> NDArray[np.uint8] | None:
    """Read the pixels uint8 [height, width, channels] of a file that `encode` wrote as a single block.

    None for any other file, or if a byte has changed: a decoder then reports the error.
    """
    frame = _frame_of(encoded[16:26])
    if frame is None or len(encoded) != frame.bytes or not encoded.startswith(frame.head):
        return None
    content = encoded[len(frame.head) : -len(frame.tail) - 2 * CHECKSUM.size]
    lines = np.frombuffer(content, np.uint8).reshape(frame.lines)
    return None if encoded != frame.around(content) or lines[:, 0].any() else lines[:, 1:].reshape(frame.shape)


def all_stored_pixels(images: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]] | None:
    """Like `stored_pixels` for many files of one size: uint8 [N, height, width, channels], and which are valid.

    None if `encode` did not write the first file, or sizes differ.
    """
    frame = _frame_of(images[0][16:26])
    if frame is None or {len(encoded) for encoded in images} != {frame.bytes}:
        return None
    start, stop = len(frame.head), frame.bytes - len(frame.tail) - 2 * CHECKSUM.size
    checksums = frame.checksums([encoded[start:stop] for encoded in images])
    rows = np.frombuffer(b"".join(images), np.uint8).reshape(len(images), -1)
    lines = rows[:, start:stop].reshape(-1, *frame.lines)
    expected_tail = np.frombuffer(frame.tail, np.uint8)
    valid = (rows[:, :start] == np.frombuffer(frame.head, np.uint8)).all(1)
    valid &= (rows[:, stop : stop + 2 * CHECKSUM.size] == checksums).all(1)
    valid &= (rows[:, -len(expected_tail) :] == expected_tail).all(1) & ~lines[:, :, 0].any(1)
    return lines[:, :, 1:].reshape(-1, *frame.shape), valid


@lru_cache(maxsize=1024)
def _frame_of(size: bytes) -> _Frame | None:
    """Return the frame for the fields of an IHDR; None if a single block cannot hold that many pixels."""
    if len(size) != 10:
        return None
    width, height, _, colour = struct.unpack(">IIBB", size)
    channels = next((channels for channels, number in COLOURS.items() if number == colour), None)
    return _frame(height, width, channels) if channels and file_bytes((1, height, width, channels)) else None


@lru_cache(maxsize=1024)
def _frame(height: int, width: int, channels: int) -> _Frame:
    line = 1 + width * channels
    length = height * line
    block = b"\x78\x01" + struct.pack("<BHH", 1, length, length ^ 0xFFFF)
    data = CHECKSUM.pack(len(block) + length + 4) + b"IDAT" + block
    head = SIGNATURE + _header(height, width, channels) + data
    begun = crc32(block, crc32(b"IDAT"))
    return _Frame(head, _chunk(b"IEND", b""), (height, line), (height, width, channels), begun)


def _header(height: int, width: int, channels: int) -> bytes:
    return _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0))


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = crc32(content, crc32(kind))
    return CHECKSUM.pack(len(content)) + kind + content + CHECKSUM.pack(checksum)


def _zlib_stored(content: bytes) -> bytes:
    """Wrap content in an uncompressed zlib stream."""
    parts = [b"\x78\x01"]
    for start in range(0, len(content), STORED_BYTES):
        block = content[start : start + STORED_BYTES]
        last = start + STORED_BYTES >= len(content)
        parts += [struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF), block]
    return b"".join((*parts, CHECKSUM.pack(adler32(content))))


class PngInfo(NamedTuple):
    """Header fields and chunk types of a valid PNG file."""

    width: int
    height: int
    bits: int  # per sample
    colour: int  # type, as in the header
    interlaced: bool
    kinds: frozenset[bytes]  # of chunks

    @property
    def kept(self) -> bool:
        """Whether a record keeps such a file byte for byte: 8-bit grey or RGB without transparency."""
        return self.bits == 8 and self.colour in COLOURS.values() and not {b"tRNS", b"acTL"} & self.kinds


def check(content: bytes) -> PngInfo:
    """Check every byte of a PNG file: all chunks and the filtered lines. Pillow ignores much damage.

    Source: PNG specification (W3C), sections 5 (chunks), 7 (lines), 8 (interlacing) and 9 (filters).

    Raises:
        Refused: the file is damaged or incomplete, an animation, or has too many pixels.
    """
    chunks = _read_chunks(content)
    kinds = [kind for kind, _ in chunks]
    _check_kinds(kinds)
    width, height, bits, colour, *methods, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    check_size(width, height)
    if methods != [0, 0] or interlaced > 1:
        raise Refused(f"it is damaged: it has the methods {[*methods, interlaced]}")
    stream = b"".join(body for kind, body in chunks if kind == b"IDAT")
    try:
        _check_lines(stream, width, height, bits * SAMPLES.get(colour, 1), interlaced)
    except zlib.error as error:
        raise Refused(f"it is damaged: {error}") from error
    return PngInfo(width, height, bits, colour, bool(interlaced), frozenset(kinds))


def _read_chunks(content: bytes) -> list[tuple[bytes, memoryview]]:
    """Read kind and body of the chunks up to IEND and verify all checksums; Pillow verifies only some."""
    chunks: list[tuple[bytes, memoryview]] = []
    position, whole = len(SIGNATURE), memoryview(content)
    while not chunks or chunks[-1][0] != b"IEND":
        if len(content) < position + 12:
            raise Refused("it is incomplete: a PNG without an end")
        length, kind = struct.unpack_from(">I4s", content, position)
        body, position = whole[position + 8 : position + 8 + length], position + 12 + length
        if position > len(content):
            raise Refused(f"it is incomplete: it ends within the chunk {kind!r}")
        if struct.unpack_from(">I", content, position - 4)[0] != zlib.crc32(body, zlib.crc32(kind)):
            raise Refused(f"it is damaged: the checksum of the chunk {kind!r} is wrong")
        if not chunks and (kind, length) != (b"IHDR", 13):
            raise Refused(f"it is damaged: its first chunk is {kind!r} of {length} bytes")
        if kind == b"acTL" and bytes(body[:4]) != b"\0\0\0\1":
            raise Refused("it is an animation")
        chunks.append((kind, body))
    return chunks


def _check_kinds(kinds: list[bytes]) -> None:
    """Check that the IDAT chunks are consecutive, and that there is no unknown critical chunk."""
    if unknown := [kind for kind in kinds if kind[:1].isupper() and kind not in CRITICAL]:
        raise Refused(f"it is damaged: the chunk {unknown[0]!r} is unknown")
    count = kinds.count(b"IDAT")
    if not count or kinds[kinds.index(b"IDAT") :][:count] != [b"IDAT"] * count:
        raise Refused("it is damaged: its IDAT chunks are missing or not consecutive")


def _check_lines(stream: bytes, width: int, height: int, bits_per_pixel: int, interlaced: int) -> None:
    """Check that all lines exist (Pillow treats missing ones as black), and that their filters are known.

    PNG pixels can have no other error, so they need not be reconstructed.
    """
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
    line_bytes = [1 + -(-wide * bits_per_pixel // 8) for wide, _ in sizes]
    expected = sum(high * line for (wide, high), line in zip(sizes, line_bytes, strict=True) if wide > 0)
    decompressor = zlib.decompressobj()
    lines = decompressor.decompress(stream, expected + 1)  # not more: it may be a decompression bomb
    if len(lines) != expected or not decompressor.eof:
        raise Refused(f"it is damaged: its lines have {len(lines)} bytes, expected {expected}")
    if not interlaced and max(lines[:: line_bytes[0]]) > FILTERS:
        raise Refused(f"it is damaged: a line has the filter {max(lines[:: line_bytes[0]])}")
