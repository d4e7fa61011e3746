"""TFRecord frames: what is written, and every damage that is found."""

import pytest

from perennial.tfrecord import framing
from perennial.tfrecord.framing import Fault

RECORDS = [b"first", b"", b"the third", b"\x00" * 40]
FRAMES = [framing.frame(data) for data in RECORDS]
CONTENT = b"".join(FRAMES)
OFFSETS = [sum(map(len, FRAMES[:number])) for number in range(len(FRAMES))]
# of the third record: its length and the checksum of that, then its data and their checksum
HEADER_BITS = range(OFFSETS[2] * 8, (OFFSETS[2] + framing.HEADER.size) * 8)
DATA_BITS = range(HEADER_BITS.stop, OFFSETS[3] * 8)


def flipped(bit):
    content = bytearray(CONTENT)
    content[bit // 8] ^= 1 << bit % 8
    return bytes(content)


def faults(content):
    """Record number, offset and code of what is wrong."""
    return [
        (number, offset, data.code)
        for number, (offset, data) in enumerate(framing.walk(content))
        if isinstance(data, Fault)
    ]


def test_a_frame_is_the_bytes_of_the_format():
    assert framing.frame(b"abc").hex() == "0300000000000000b099490e6162636e57f121"


def test_an_empty_record_is_sixteen_bytes():
    assert len(framing.frame(b"")) == 16


def test_records_come_back_in_their_order():
    assert [data for _, data in framing.walk(CONTENT)] == RECORDS


def test_each_record_comes_with_its_offset():
    assert [offset for offset, _ in framing.walk(CONTENT)] == OFFSETS


def test_a_file_without_bytes_has_no_records():
    assert list(framing.walk(b"")) == []


def test_a_cut_inside_a_record_is_found_at_that_record():
    cuts = [size for size in range(len(CONTENT)) if size not in OFFSETS]
    expected = [
        [(number := max(n for n in range(4) if OFFSETS[n] < cut), OFFSETS[number], "record_truncated")]
        for cut in cuts
    ]
    assert [faults(CONTENT[:cut]) for cut in cuts] == expected


def test_the_message_of_a_cut_says_how_much_is_missing():
    *_, (_, fault) = framing.walk(CONTENT[:-3])
    assert fault.message == "the last 3 bytes of the record are missing"


@pytest.mark.parametrize(("bits", "code"), [(HEADER_BITS, "length_crc"), (DATA_BITS, "data_crc")])
def test_every_flipped_bit_is_found_at_its_record(bits, code):
    assert [bit for bit in bits if faults(flipped(bit)) != [(2, OFFSETS[2], code)]] == []


def test_records_after_damaged_data_are_still_read():
    damaged = flipped((OFFSETS[2] + framing.HEADER.size) * 8)
    assert [data for _, data in framing.walk(damaged) if isinstance(data, bytes)] == [
        RECORDS[0],
        RECORDS[1],
        RECORDS[3],
    ]


def test_nothing_is_read_after_a_damaged_length():
    assert [data for _, data in framing.walk(flipped(OFFSETS[2] * 8))][:-1] == RECORDS[:2]


def test_a_length_beyond_every_file_is_a_cut_record():
    length = framing.LENGTH.pack(2**64 - 1)
    header = length + framing.CHECKSUM.pack(framing._masked_crc(length))
    assert faults(header + b"data") == [(0, 0, "record_truncated")]
