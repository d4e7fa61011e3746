"""TFRecord files of any content are read as what they say, or refused with the place."""

import io
import struct

import google_crc32c
import numpy as np
import pytest
from fuzz.hunt import hostile, hunt, mutated
from hypothesis import strategies as st
from support.raw import encoded, picture
from support.records import datum

from perennial.base.errors import DataError
from perennial.data.datasets import tfrecord as own_records
from perennial.data.images import Image, decode
from perennial.data.tfrecord import bulk, example, framing
from perennial.data.validation import inspection
from perennial.data.validation.inspection import Checks, Part
from perennial.data.validation.problems import FIXES

DATA = [datum(np.full((2, 2), number, np.uint8), number % 3) for number in range(12)]
JPEG = Image(encoded=encoded(picture(0, 9), "JPEG"), format="jpg", height=9, width=9, filename="a/b.jpg")
FOREIGN = [example.serialize(JPEG, 1), example.serialize(JPEG._replace(filename=None), 2)]
EQUAL = b"".join(framing.frame(bytes(10)) for _ in range(20))
MIXED = b"".join(map(framing.frame, [*DATA, *FOREIGN, b"", b"x" * 300, *DATA[:3]]))
RECORDS = b"".join(map(framing.frame, [*DATA, *FOREIGN]))


def masked(content):
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def walked(content):
    """Offset and length of each record, record by record; and where that ends before the file does."""
    found, offset = [], 0
    while offset < len(content):
        head = content[offset : offset + 12]
        if len(head) < 12:
            return found, ("record_truncated", offset)
        if masked(head[:8]) != head[8:]:
            return found, ("length_crc", offset)
        (length,) = struct.unpack("<Q", head[:8])
        if offset + length + 16 > len(content):
            return found, ("record_truncated", offset)
        found.append([offset, length])
        offset += length + 16
    return found, None


@pytest.mark.parametrize("block_bytes", [16, 100, 1 << 20])
def test_records_are_found_where_a_plain_reader_finds_them(block_bytes):

    def check(content):
        places, fault = framing.scan(io.BytesIO(content), len(content), block_bytes=block_bytes)
        assert (places.tolist(), fault and (fault.code, fault.offset)) == walked(content)

    hunt(hostile(EQUAL, MIXED), check)


def test_checksums_of_data_are_those_that_a_plain_reader_computes():
    def check(content):
        found, _ = walked(content)
        expected = [
            masked(content[at + 12 : at + 12 + size]) == content[at + 12 + size :][:4] for at, size in found
        ]
        places = np.array(found, np.uint64).reshape(-1, 2)
        assert framing.valid_data(content, places).tolist() == expected

    hunt(hostile(EQUAL, MIXED), check)


def test_an_example_is_parsed_to_what_serializes_to_the_same_or_refused():
    def check(data):
        try:
            fields, image = example.parse(data)
        except ValueError:
            return
        if fields.filename is not None:
            return
        again = Image(encoded=image, format=fields.format, height=fields.height, width=fields.width)
        assert example.parse(example.serialize(again, fields.label)) == (fields, image)

    hunt(hostile(*DATA[:2], *FOREIGN), check)


def test_the_span_of_an_image_is_where_other_bytes_give_another_image():
    def check(data):
        try:
            fields, image = example.parse(data)
        except ValueError:
            return
        span = example.image_span(data, fields, image)
        if span is not None:
            other = bytes(len(image))
            assert example.parse(data[: span[0]] + other + data[span[1] :]) == (fields, other)

    hunt(hostile(*DATA[:2], *FOREIGN), check)


def test_any_bytes_are_decoded_or_refused_by_the_one_error():
    def check(content):
        try:
            pixels = decode.array(decode.decoded(content))
        except ValueError:
            return
        assert (pixels.ndim, pixels.dtype) == (3, np.uint8)
        assert pixels.shape[2] in {1, 3}

    hunt(hostile(example.parse(DATA[0])[1], JPEG.encoded, encoded(picture(1, 5))), check)


@pytest.fixture
def inspected(tmp_path, monkeypatch):
    """The inspection of a file of records."""
    file = tmp_path / "a.tfrecord"

    def found(content, minimum):
        file.write_bytes(content)
        spans, _ = framing.scan(io.BytesIO(content), len(content))
        if not len(spans):
            return None
        monkeypatch.setattr(bulk, "MINIMUM", minimum)
        request = Checks(classes=3, fingerprints=True)
        return inspection.inspect(request, Part(split="train", file=file, spans=spans))

    return found


@st.composite
def reframed(draw):
    """A file with valid frames around mutated data."""
    records = list(DATA + FOREIGN)
    for number in draw(st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=4)):
        records[number] = draw(mutated(records[number]))
    return b"".join(map(framing.frame, records))


@pytest.mark.parametrize("minimum", [3, 10**9], ids=["bulk", "one by one"])
def test_every_record_of_a_file_is_counted_or_a_problem_of_a_known_code(inspected, minimum):
    def check(content):
        found = inspected(content, minimum)
        if found is not None:
            assert found.labels.sum() + sum(found.codes.values()) == found.records
            assert found.codes.keys() <= FIXES.keys()

    hunt(hostile(RECORDS) | reframed(), check)


def test_records_in_bulk_are_found_as_they_are_one_by_one(inspected):
    def check(content):
        one, other = inspected(content, 3), inspected(content, 10**9)
        if one is not None:
            assert one.problems == other.problems
            assert one.labels.tolist() == other.labels.tolist()
            assert one.hashed[0].tobytes() == other.hashed[0].tobytes()

    hunt(reframed(), check)


@pytest.mark.parametrize("name", ["a_train.tfrecord", "labels.txt"])
def test_records_of_ones_own_are_read_or_refused(tmp_path, name):
    sound = {"a_train.tfrecord": RECORDS, "labels.txt": b"0:cat\n1:dog\n2:owl\n"}
    for file, content in sound.items():
        (tmp_path / file).write_bytes(content)

    def check(content):
        (tmp_path / name).write_bytes(content)
        try:
            examples = own_records.read(tmp_path).splits["train"]
            list(examples.images(range(len(examples.labels))))
        except DataError:
            pass

    hunt(hostile(sound[name]) | reframed() if name != "labels.txt" else hostile(sound[name]), check)
