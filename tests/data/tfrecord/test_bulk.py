"""Records that are parsed together: the same is found as when each is parsed by itself."""

import numpy as np
import pytest
from support.records import datum, image

from perennial.data.images import Image
from perennial.data.images.decode import Header, header
from perennial.data.tfrecord import bulk, example, framing

EACH = bulk.MINIMUM


def grey(number, side=4):
    return np.full((side, side), number % 251, np.uint8)


def block(records):
    """The records one after the other, where each starts, and how long it is."""
    lengths = np.array([len(data) for data in records], np.uint64)
    starts = np.cumsum(lengths) - lengths
    return b"".join(records), starts, lengths


def found(records):
    """The number of each record that was parsed with others, with what was said of it."""
    return found_by(bulk.LayoutFinder(), records)


def found_by(finder, records):
    return {int(number): kind for kind, members in finder.find(*block(records)) for number in members}


def parsed(data):
    fields, encoded = example.parse(data)
    return fields, header(encoded), encoded


def test_each_label_is_a_kind_with_the_header_and_the_span_of_its_images():
    records = [datum(grey(number), number % 3) for number in range(EACH)]
    kinds = found(records)
    labels = {number: kind.fields.label for number, kind in kinds.items()}
    assert labels == {number: number % 3 for number in range(EACH)}
    assert {kind.header for kind in kinds.values()} == {Header("png", 4, 4, 1)}
    images = {number: records[number][kind.start : kind.stop] for number, kind in kinds.items()}
    assert images == {number: image(grey(number)).encoded for number in range(EACH)}


def test_images_of_other_sizes_are_other_kinds():
    records = [datum(grey(number, 4 + number % 2), 0) for number in range(2 * EACH)]
    assert {number: kind.header.height for number, kind in found(records).items()} == {
        number: 4 + number % 2 for number in range(2 * EACH)
    }


def test_few_records_of_a_length_are_left_to_be_parsed_by_themselves():
    assert found([datum(grey(number), 0) for number in range(EACH - 1)]) == {}


@pytest.mark.parametrize("odd", [0, 1, EACH])
def test_a_different_record_is_never_given_the_layout_of_the_others(odd):
    records = [datum(grey(number), 0) for number in range(EACH + 1)]
    for position in range(len(records[odd])):
        changed = bytearray(records[odd])
        changed[position] ^= 1
        kind = found([*records[:odd], bytes(changed), *records[odd + 1 :]]).get(odd)
        if kind is not None:
            expected = (kind.fields, kind.header, bytes(changed[kind.start : kind.stop]))
            assert parsed(bytes(changed)) == expected


def test_files_with_names_are_left_to_be_parsed_by_themselves():
    named = Image(encoded=image(grey(0)).encoded, format="png", height=4, width=4, filename="a.png")
    assert found([example.serialize(named, 0)] * EACH) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 40,
        example.serialize(Image(encoded=b"\xff\xd8\xff" + bytes(40), format="jpg", height=1, width=1), 0),
    ],
    ids=["empty", "no example", "a JPEG"],
)
def test_what_is_no_png_is_left_to_be_parsed_by_itself(data):
    assert found([data] * EACH) == {}


def test_what_was_found_in_one_block_does_not_change_what_is_found_in_the_next():
    finder = bulk.LayoutFinder()
    blocks = [[datum(grey(number, side), number % 3) for number in range(EACH)] for side in (4, 5, 4, 3)]
    assert [found_by(finder, records) for records in blocks] == [found(records) for records in blocks]


def test_kinds_are_forgotten_rather_than_kept_without_end(monkeypatch):
    monkeypatch.setattr(bulk, "MAXIMUM", 2)
    records, finder = [datum(grey(number), number % 5) for number in range(EACH)], bulk.LayoutFinder()
    assert [found_by(finder, records) for _ in range(2)] == [found(records)] * 2


RANDOM = np.random.default_rng(0)


def one_by_one(images, labels):
    return b"".join(framing.frame(datum(pixels, label)) for pixels, label in zip(images, labels, strict=True))


@pytest.mark.parametrize(
    "shape", [(28, 28), (5, 3, 1), (32, 32, 3), (1, 1), (255, 256), (256, 256), (200, 200, 3)]
)
def test_many_records_are_those_that_each_image_would_be(shape):
    images, labels = RANDOM.integers(0, 256, (5, *shape), np.uint8), [3, 0, 3, 127, 1]
    assert bulk.frame_images(images, np.array(labels)) == one_by_one(images, labels)


@pytest.mark.parametrize("labels", [[127, 128, 20_000, 0], [300, 128, 129]])
def test_labels_may_take_more_or_fewer_bytes(labels):
    images = RANDOM.integers(0, 256, (len(labels), 6, 5), np.uint8)
    assert bulk.frame_images(images, np.array(labels)) == one_by_one(images, labels)


def test_no_images_are_no_records():
    assert bulk.frame_images(np.zeros((0, 4, 4), np.uint8), np.zeros(0, np.int64)) == b""
