"""How TFRecord files frame their records, written and walked without TensorFlow.

A record is its length (u64), the masked CRC32C of those 8 bytes (u32), the data, and the masked CRC32C of
the data (u32), all little-endian. Source: tensorflow/core/lib/io/record_writer.h.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import google_crc32c

HEADER = struct.Struct("<QI")
LENGTH = struct.Struct("<Q")
CHECKSUM = struct.Struct("<I")
MASK_DELTA = 0xA282EAD8


@dataclass(frozen=True)
class Fault:
    """What is wrong with the framing of a record."""

    code: str
    message: str


def frame(data: bytes) -> bytes:
    """A record around its data."""
    length = LENGTH.pack(len(data))
    return b"".join(
        (
            length,
            CHECKSUM.pack(_masked_crc(length)),
            data,
            CHECKSUM.pack(_masked_crc(data)),
        )
    )


def walk(content: bytes) -> Iterator[tuple[int, bytes | Fault]]:
    """The offset of each record in a file's content, with its data or with what is wrong with it.

    A damaged payload is stepped over; after a damaged length or a cut nothing more can be found.
    """
    offset, end = 0, len(content)
    while offset < end:
        if end - offset < HEADER.size:
            yield (
                offset,
                Fault("record_truncated", f"{end - offset} bytes of a header of {HEADER.size}"),
            )
            return
        length, length_crc = HEADER.unpack_from(content, offset)
        if _masked_crc(content[offset : offset + LENGTH.size]) != length_crc:
            yield offset, Fault("length_crc", "the checksum of the record's length does not match")
            return
        start = offset + HEADER.size
        stop = start + length
        if stop + CHECKSUM.size > end:
            missing = stop + CHECKSUM.size - end
            yield (
                offset,
                Fault("record_truncated", f"the last {missing} bytes of the record are missing"),
            )
            return
        data = content[start:stop]
        intact = _masked_crc(data) == CHECKSUM.unpack_from(content, stop)[0]
        yield (
            offset,
            data if intact else Fault("data_crc", "the checksum of the record's data does not match"),
        )
        offset = stop + CHECKSUM.size


def _masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF
