"""How TFRecord files frame their records, written and walked without TensorFlow.

A record is its length (u64), the masked CRC32C of those 8 bytes (u32), the data, and the masked CRC32C of
the data (u32), all little-endian. Source: tensorflow/core/lib/io/record_writer.h.
"""

import struct
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import google_crc32c
import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("<QI")
LENGTH = struct.Struct("<Q")
CHECKSUM = struct.Struct("<I")
AROUND = HEADER.size + CHECKSUM.size  # bytes of a record that are not its data
MASK_DELTA = 0xA282EAD8
BLOCK_BYTES = 1 << 20
Places = NDArray[np.uint64]  # [records, 2]: offset of the record, bytes of its data


@dataclass(frozen=True)
class Fault:
    """What is wrong with the framing of a record."""

    code: str
    message: str
    offset: int


def frame(data: bytes) -> bytes:
    """A record around its data."""
    return b"".join((_header(len(data)), data, CHECKSUM.pack(_masked(google_crc32c.value(data)))))


def close_all(records: NDArray[np.uint8]) -> None:
    """Fills in the checksums of the data of records of one length, rows [N, bytes] that lack nothing else."""
    block, (count, stride) = records.tobytes(), records.shape
    starts = range(HEADER.size, count * stride, stride)
    length, value = stride - AROUND, google_crc32c.value
    found = [value(block[start : start + length]) for start in starts]
    records[:, -CHECKSUM.size :] = _all_masked(found).astype("<u4").view(np.uint8).reshape(count, -1)


def scan(stream: BinaryIO, size: int) -> tuple[Places, Fault | None]:
    """Where the records of a file are, from their headers alone, and what ends them before the file does.

    After a damaged length or a cut nothing more can be found. The checksums of the data are not looked at.
    """
    places, offset = array("Q"), 0
    block, start, header = b"", 0, b""
    while offset < size:
        if offset + HEADER.size > start + len(block):
            large = len(header) > 0 and int(places[-1]) > BLOCK_BYTES // 16
            stream.seek(offset)
            block, start = stream.read(HEADER.size if large else BLOCK_BYTES), offset
        header = block[offset - start : offset - start + HEADER.size]
        if len(header) < HEADER.size:
            message = f"{len(header)} bytes of a header of {HEADER.size}"
            return _places(places), Fault("record_truncated", message, offset)
        length = LENGTH.unpack_from(header)[0]
        if header != _header(length):
            return _places(places), Fault(
                "length_crc", "the checksum of the record's length does not match", offset
            )
        stride = length + AROUND
        if offset + stride > size:
            message = f"the last {offset + stride - size} bytes of the record are missing"
            return _places(places), Fault("record_truncated", message, offset)
        alike = _alike(block, offset - start, stride, header)
        for _ in range(alike) if alike < 8 else ():
            places.extend((offset, length))
            offset += stride
        if alike >= 8:
            run = np.full((alike, 2), length, np.uint64)
            run[:, 0] = offset + stride * np.arange(alike, dtype=np.uint64)
            places.frombytes(run.tobytes())
            offset += stride * alike
    return _places(places), None


def sound(block: bytes, places: Places) -> NDArray[np.bool_]:
    """Which records of a block have the checksum of their data; places count from the block's begin."""
    starts = (places[:, 0] + HEADER.size).tolist()
    stops = places.sum(1) + HEADER.size
    value = google_crc32c.value
    found = [value(block[start:stop]) for start, stop in zip(starts, stops.tolist(), strict=True)]
    at = stops[:, None] + np.arange(CHECKSUM.size, dtype=np.uint64)
    stored = np.frombuffer(block, np.uint8)[at].view("<u4")[:, 0]
    matching: NDArray[np.bool_] = _all_masked(found) == stored
    return matching


def _alike(block: bytes, at: int, stride: int, header: bytes) -> int:
    """How many whole records in a row, this one first, have this header: those of equal length."""
    if block[at + stride : at + stride + HEADER.size] != header:
        return 1
    count = (len(block) - at) // stride
    if count < 2:
        return 1
    rows = np.frombuffer(block, np.uint8, count * stride, at).reshape(count, stride)
    different = np.flatnonzero((rows[:, : HEADER.size] != np.frombuffer(header, np.uint8)).any(1))
    return int(different[0]) if different.size else count


@lru_cache(maxsize=4096)
def _header(length: int) -> bytes:
    packed = LENGTH.pack(length)
    return HEADER.pack(length, _masked(google_crc32c.value(packed)))


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def _all_masked(crcs: list[int]) -> NDArray[np.uint32]:
    found: NDArray[np.uint32] = np.array(crcs, np.uint32)
    return np.asarray((found >> 15 | found << 17) + np.uint32(MASK_DELTA), np.uint32)


def _places(flat: "array[int]") -> Places:
    return np.frombuffer(flat, np.uint64).reshape(-1, 2) if flat else np.zeros((0, 2), np.uint64)
