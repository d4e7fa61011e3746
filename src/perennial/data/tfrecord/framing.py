"""Write and scan the framing of TFRecord files without TensorFlow.

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
OVERHEAD = HEADER.size + CHECKSUM.size  # bytes of a record that are not its data
MASK_DELTA = 0xA282EAD8
BLOCK_BYTES = 1 << 20
GZIP = b"\x1f\x8b\x08"
Spans = NDArray[np.uint64]  # [records, 2]: offset of the record, bytes of its data


@dataclass(frozen=True)
class FramingFault:
    """Damage to the framing of a record."""

    code: str
    message: str
    offset: int


def compression(start: bytes) -> str | None:
    """The compression of a TFRecord file by its first twelve bytes: gzip, zlib or None."""
    if len(start) == HEADER.size and start == _header(LENGTH.unpack_from(start)[0]):
        return None  # a record may have a length that looks like gzip's mark
    if start.startswith(GZIP):
        return "gzip"
    # RFC 1950: deflate with a window of at most 32 KiB, and a check of both bytes
    zlib = len(start) > 1 and start[0] & 0x8F == 0x08 and not int.from_bytes(start[:2]) % 31
    return "zlib" if zlib else None


def frame(data: bytes) -> bytes:
    """Frame data as a record."""
    return b"".join((_header(len(data)), data, CHECKSUM.pack(_masked(google_crc32c.value(data)))))


def around(before: bytes, content: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Frame data in three parts as a record: what precedes the content in the file, and what follows it."""
    crc = google_crc32c.value(before)
    for part in (content, after):
        crc = google_crc32c.extend(crc, part)
    header = _header(len(before) + len(content) + len(after))
    return header + before, after + CHECKSUM.pack(_masked(crc))


def fill_checksums(records: NDArray[np.uint8]) -> None:
    """Fill in the data checksums of framed records of one length, rows [N, bytes]."""
    block, (count, stride) = records.tobytes(), records.shape
    starts = range(HEADER.size, count * stride, stride)
    length, value = stride - OVERHEAD, google_crc32c.value
    found = [value(block[start : start + length]) for start in starts]
    records[:, -CHECKSUM.size :] = _all_masked(found).astype("<u4").view(np.uint8).reshape(count, -1)


def scan(stream: BinaryIO, size: int, *, block_bytes: int = BLOCK_BYTES) -> tuple[Spans, FramingFault | None]:
    """Find the spans of records by their headers, and the fault, if any, that ends the scan."""
    spans, offset = array("Q"), 0
    block, start, header = b"", 0, b""
    while offset < size:
        if offset + HEADER.size > start + len(block):
            large = len(header) > 0 and int(spans[-1]) > block_bytes // 16
            stream.seek(offset)
            block, start = stream.read(HEADER.size if large else block_bytes), offset
        header = block[offset - start : offset - start + HEADER.size]
        if len(header) < HEADER.size:
            message = f"{len(header)} bytes of a header of {HEADER.size}"
            return _spans(spans), FramingFault("record_truncated", message, offset)
        length = LENGTH.unpack_from(header)[0]
        if header != _header(length):
            form = None if offset else compression(header)
            message = "the checksum of the record's length does not match"
            if form:
                message += f"; the file looks compressed with {form}: decompress it first"
            elif not offset:
                message += f"; a TFRecord file does not start with {header!r}"
            return _spans(spans), FramingFault("length_crc", message, offset)
        stride = length + OVERHEAD
        if offset + stride > size:
            message = f"the last {offset + stride - size} bytes of the record are missing"
            return _spans(spans), FramingFault("record_truncated", message, offset)
        equal = _equal(block, offset - start, stride, header)
        for _ in range(equal) if equal < 8 else ():
            spans.extend((offset, length))
            offset += stride
        if equal >= 8:
            run = np.full((equal, 2), length, np.uint64)
            run[:, 0] = offset + stride * np.arange(equal, dtype=np.uint64)
            spans.frombytes(run.tobytes())
            offset += stride * equal
    return _spans(spans), None


def valid_data(block: bytes, spans: Spans) -> NDArray[np.bool_]:
    """Whether the data checksum of each record matches, bool [N]; spans are relative to the block's start."""
    starts = (spans[:, 0] + HEADER.size).tolist()
    stops = spans.sum(1) + HEADER.size
    value = google_crc32c.value
    found = [value(block[start:stop]) for start, stop in zip(starts, stops.tolist(), strict=True)]
    at = stops[:, None] + np.arange(CHECKSUM.size, dtype=np.uint64)
    stored = np.frombuffer(block, np.uint8)[at].view("<u4")[:, 0]
    matching: NDArray[np.bool_] = _all_masked(found) == stored
    return matching


def _equal(block: bytes, at: int, stride: int, header: bytes) -> int:
    """Count the consecutive complete records with this header, from this one on."""
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


def _spans(flat: "array[int]") -> Spans:
    return np.frombuffer(flat, np.uint64).reshape(-1, 2) if flat else np.zeros((0, 2), np.uint64)
