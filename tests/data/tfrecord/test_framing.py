"""TFRecord frames: what is written, and every damage that is found."""

import io

import numpy as np
import pytest
import tensorflow as tf

from perennial.data.tfrecord import framing

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


def scan(content, **options):
    return framing.scan(io.BytesIO(content), len(content), **options)


def data(content):
    """The data of each record that is found, None where its checksum does not match."""
    places, _ = scan(content)
    whole = framing.valid_data(content, places)
    return [
        content[offset + framing.HEADER.size :][:length] if sound else None
        for (offset, length), sound in zip(places.tolist(), whole.tolist(), strict=True)
    ]


def fault(content):
    """Record number, offset and code of what ends a file early."""
    places, found = scan(content)
    return None if found is None else (len(places), found.offset, found.code)


def test_frames_are_the_bytes_that_tensorflow_writes(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "theirs.tfrecord")) as writer:
        for record in RECORDS:
            writer.write(record)
    assert (tmp_path / "theirs.tfrecord").read_bytes() == CONTENT


@pytest.mark.parametrize("block_bytes", [12, 64, 100, 1 << 10])
def test_records_are_found_wherever_the_blocks_that_are_read_end(block_bytes):
    rng = np.random.default_rng(0)
    lengths = np.repeat(rng.integers(0, 150, 60), rng.integers(1, 30, 60)).tolist()
    places, found = scan(b"".join(framing.frame(bytes(length)) for length in lengths), block_bytes=block_bytes)
    assert found is None
    assert places.tolist() == [
        [sum(lengths[:number]) + number * framing.OVERHEAD, length] for number, length in enumerate(lengths)
    ]


@pytest.mark.parametrize("place", [0, 7, 8, 9, 498, 499])
def test_a_damaged_length_among_many_equal_ones_is_found_at_its_record(place):
    content = bytearray(framing.frame(bytes(10)) * 500)
    content[place * 26 + 3] ^= 1
    assert fault(bytes(content)) == (place, place * 26, "length_crc")


@pytest.mark.parametrize("cut", [1, 13, 25, 26 * 7 + 1, 26 * 499 + 1])
def test_a_cut_among_many_equal_records_is_found_at_the_last(cut):
    number = 500 - 1 - cut // 26
    assert fault((framing.frame(bytes(10)) * 500)[:-cut]) == (number, number * 26, "record_truncated")


def test_a_cut_inside_a_record_is_found_at_that_record():
    cuts = [size for size in range(len(CONTENT)) if size not in OFFSETS]
    expected = [
        (number := max(n for n in range(4) if OFFSETS[n] < cut), OFFSETS[number], "record_truncated")
        for cut in cuts
    ]
    assert [fault(CONTENT[:cut]) for cut in cuts] == expected


def test_every_flipped_bit_of_a_length_is_found_at_its_record():
    assert [bit for bit in HEADER_BITS if fault(flipped(bit)) != (2, OFFSETS[2], "length_crc")] == []


def test_every_flipped_bit_of_the_data_is_found_at_its_record_alone():
    expected = [*RECORDS[:2], None, RECORDS[3]]
    assert [bit for bit in DATA_BITS if data(flipped(bit)) != expected] == []


def test_a_length_beyond_every_file_is_a_cut_record():
    assert fault(framing._header(2**64 - 1) + b"data") == (0, 0, "record_truncated")


def test_a_file_that_became_shorter_while_it_was_scanned_is_a_cut_one():
    places, found = framing.scan(io.BytesIO(CONTENT[: OFFSETS[3]]), len(CONTENT))
    assert (len(places), found.code, found.offset) == (3, "record_truncated", OFFSETS[3])
