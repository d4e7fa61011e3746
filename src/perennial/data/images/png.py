"""Write PNG files with uncompressed pixels, identical on every machine.

Compressed bytes differ between zlib builds, so a record file of compressed PNGs would have different digests on
different machines. Small images grow only a little. Source: PNG specification (W3C), RFC 1950 and RFC 1951.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

import numpy as np
from isal.isal_zlib import adler32, crc32
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = {1: 0, 3: 2}  # channels: colour type, grey and RGB
STORED_BYTES = 0xFFFF  # maximum size of a stored deflate block
CHECKSUM = struct.Struct(">I")
# The register of CRC-32 after each byte, from a register of 0.
CRC_TABLE = ~np.array([crc32(bytes([byte]), 0xFFFFFFFF) for byte in range(256)], np.uint32)
DATA_AT = len(SIGNATURE) + 25 + 8  # of IDAT's content: after the signature, IHDR and IDAT's length and name


@dataclass(frozen=True)
class _Frame:
    """The bytes around the pixels of one image size, for pixels that fit into a single block."""

    head: bytes
    tail: bytes
    lines: tuple[int, int]  # height, bytes of a line with its filter byte
    shape: tuple[int, int, int]
    begun: int  # CRC-32 of IDAT's name and the bytes before the lines

    def checksums(self, contents: Sequence[bytes]) -> NDArray[np.uint8]:
        """Compute the checksums that follow each content: Adler-32 and CRC-32, uint8 [N, 8]."""
        count = len(contents)
        found = np.empty((count, 2), ">u4")
        found[:, 0] = np.fromiter(map(adler32, contents), np.uint32, count)
        crcs = ~np.fromiter(map(crc32, contents, repeat(self.begun)), np.uint32, count)
        for adler_byte in found[:, :1].view(np.uint8).T:  # that of all files at once
            crcs = CRC_TABLE[(crcs ^ adler_byte) & 0xFF] ^ crcs >> 8
        found[:, 1] = ~crcs
        return found.view(np.uint8)


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """Encode pixels uint8 [height, width] (grey) or [height, width, 1 or 3] (grey or RGB) as PNG."""
    if file_bytes((1, *pixels.shape)):
        (encoded,) = encode_all(pixels[None])
        return encoded
    height, width, channels = (*pixels.shape, 1)[:3]
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each line begins with filter 0: none
    lines[:, 1:] = pixels.reshape(height, -1)
    data = list(_zlib_stored(lines.ravel().data))
    checksum = crc32(b"IDAT")
    for each in data:
        checksum = crc32(each, checksum)
    start = (SIGNATURE, _header(height, width, channels), CHECKSUM.pack(sum(map(len, data))), b"IDAT")
    return b"".join((*start, *data, CHECKSUM.pack(checksum), chunk(b"IEND", b"")))


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
    """Size of the files of images [N, height, width (, 1 or 3)]; None if one block cannot hold the pixels."""
    height, width, channels = (*shape[1:], 1)[:3]
    fits = 0 < height * (1 + width * channels) <= STORED_BYTES
    return encoded_bytes(height, width, channels) if fits else None


def encode_into(files: NDArray[np.uint8], images: NDArray[np.uint8]) -> None:
    """Encode images of one size like `encode` into rows [N, file_bytes], which may be slices of longer ones."""
    frame = _frame(*(*images.shape[1:], 1)[:3])
    start, stop = len(frame.head), encoded_bytes(*frame.shape) - len(frame.tail) - 2 * CHECKSUM.size
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
    found = all_stored_pixels([encoded])
    return found[0][0] if found is not None and found[1].all() else None


def all_stored_pixels(images: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]] | None:
    """Like `stored_pixels` for many files of one size: uint8 [N, height, width, channels], and which are valid.

    None if `encode` did not write the first file, or sizes differ.
    """
    frame = _frame_of(images[0][16:26])
    if frame is None or {len(encoded) for encoded in images} != {encoded_bytes(*frame.shape)}:
        return None
    start, stop = len(frame.head), encoded_bytes(*frame.shape) - len(frame.tail) - 2 * CHECKSUM.size
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
    return _Frame(head, chunk(b"IEND", b""), (height, line), (height, width, channels), begun)


def _header(height: int, width: int, channels: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0))


def chunk(kind: bytes, content: bytes) -> bytes:
    """Build a chunk: length, kind, content and checksum."""
    checksum = crc32(content, crc32(kind))
    return CHECKSUM.pack(len(content)) + kind + content + CHECKSUM.pack(checksum)


def _zlib_stored(content: memoryview) -> Iterator[bytes | memoryview]:
    """Yield the parts of an uncompressed zlib stream, without copies: images may have hundreds of megabytes."""
    yield b"\x78\x01"
    for start in range(0, len(content), STORED_BYTES):
        block = content[start : start + STORED_BYTES]
        last = start + STORED_BYTES >= len(content)
        yield struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF)
        yield block
    yield CHECKSUM.pack(adler32(content))
