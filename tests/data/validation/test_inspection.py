"""Inspection of parts of a shard: the same is found however the work is divided."""

import io
import random

import numpy as np
import pytest
from data.validation.damage import blackened, changed_record
from support.raw import encoded, picture
from support.records import datum

from perennial.data.images import Image
from perennial.data.tfrecord import bulk, example, framing
from perennial.data.validation import inspection
from perennial.data.validation.inspection import Checks, Part

COUNT = 300  # more than are parsed together
DECODE = ("all", "sample", "none")


def own(number):
    """A record as `convert` makes it of raw pixels."""
    return datum(np.full((4, 4), number % 250, np.uint8), number % 3)


def foreign(number):
    """A record with a compressed image of a person's own."""
    kind = ("PNG", "JPEG")[number % 2]
    content = encoded(picture(number, 20), kind)
    name = {"PNG": "png", "JPEG": "jpg"}[kind]
    return example.serialize(Image(encoded=content, format=name, height=20, width=20), number % 3)


def large(number):
    content = encoded(picture(number, 200), "JPEG")
    return example.serialize(Image(encoded=content, format="jpeg", height=200, width=200), number % 3)


RECORDS = {
    "own": [own(number) for number in range(COUNT)],
    "foreign": [foreign(number) for number in range(40)],
    "large": [large(number) for number in range(4)],
    "mixed": [*map(foreign, range(10)), *map(own, range(COUNT)), large(0), *map(foreign, range(10, 20))],
}
every_kind = pytest.mark.parametrize("records", RECORDS.values(), ids=RECORDS)


@pytest.fixture
def inspect(tmp_path):
    """Inspects records in parts of so many."""

    def inspected(records, decode="all", size=10_000):
        file = tmp_path / "a.tfrecord"
        content = b"".join(map(framing.frame, records))
        file.write_bytes(content)
        spans, _ = framing.scan(io.BytesIO(content), len(content))
        request = Checks(classes=3, decode=decode, fingerprints=True)
        return [
            inspection.inspect(
                request, Part(split="train", file=file, first=first, spans=spans[first : first + size])
            )
            for first in range(0, len(spans), size)
        ]

    return inspected


def summary(parts):
    statistics = parts[0].statistics
    for part in parts[1:]:
        statistics.add(part.statistics)
    hashed = [part.hashed for part in parts if part.hashed is not None]
    return {
        "records": sum(part.records for part in parts),
        "problems": [problem for part in parts for problem in part.problems],
        "labels": sum(part.labels for part in parts).tolist(),
        "sizes": dict(statistics.sizes),
        "brightness": statistics.brightness.tolist(),
        "histograms": {channels: each.tolist() for channels, each in statistics.histograms.items()},
        "entries": [entry.tobytes() for entries, _ in hashed for entry in entries],
        "packed labels": [label for _, labels in hashed for label in labels.tolist()],
    }


@every_kind
@pytest.mark.parametrize("decode", DECODE)
def test_records_parsed_in_bulk_are_found_as_they_are_one_by_one(inspect, records, decode, monkeypatch):
    found = summary(inspect(records, decode))
    monkeypatch.setattr(bulk, "MINIMUM", 10**9)
    assert summary(inspect(records, decode)) == found


@every_kind
@pytest.mark.parametrize("size", [1, 280])  # one by one, and the first part in bulk
@pytest.mark.parametrize("decode", DECODE)
def test_the_size_of_the_parts_does_not_matter(inspect, records, decode, size):
    assert summary(inspect(records, decode, size)) == summary(inspect(records, decode))


def test_images_of_several_kinds_are_taken_for_what_they_are(inspect):
    assert summary(inspect(RECORDS["mixed"]))["sizes"] == {(4, 4, 1): COUNT, (20, 20, 3): 20, (200, 200, 3): 1}


CHANGES = {
    "label_range": lambda data: changed_record(data, label=3),
    "image_size": lambda data: changed_record(data, height=9),
    "image_format": lambda data: changed_record(data, encoded=b"none"),
    "image_decode": blackened,
    "schema": lambda data: data[:-3],
}
WRONG = [
    (kind, number, code)
    for kind in ("own", "mixed")
    for number in (0, 13, 255, 299)
    for code in CHANGES
    # A JPEG has no checksum.
    if (code, example.parse(RECORDS[kind][number])[0].format) != ("image_decode", "jpg")
]


@pytest.mark.parametrize(("kind", "number", "code"), WRONG)
def test_one_wrong_record_among_many_is_found(inspect, kind, number, code):
    records = RECORDS[kind]
    changed = [*records[:number], CHANGES[code](records[number]), *records[number + 1 :]]
    (problem,) = summary(inspect(changed))["problems"]
    assert (problem.code, problem.record) == (code, number)


def test_a_flipped_bit_under_a_valid_checksum_is_found_or_changes_the_facts(inspect):
    rng, silent, records = random.Random(0), [], RECORDS["own"]
    valid = summary(inspect(records))
    for _ in range(60):
        number, changed = rng.randrange(COUNT), list(records)
        data = bytearray(records[number])
        data[rng.randrange(len(data) - 90)] ^= 1 << rng.randrange(8)
        changed[number] = bytes(data)
        if summary(inspect(changed)) == valid:
            silent.append(number)
    assert silent == []


def test_a_file_that_became_shorter_is_reported(inspect, tmp_path):
    inspect(RECORDS["own"])
    file = tmp_path / "a.tfrecord"
    content = file.read_bytes()
    spans, _ = framing.scan(io.BytesIO(content), len(content))
    file.write_bytes(content[:-1])
    found = inspection.inspect(Checks(classes=3), Part(split="train", file=file, spans=spans))
    assert [problem.code for problem in found.problems] == ["record_truncated"]


@pytest.mark.parametrize("shape", [(1, 70_000), (70_000, 1), (1, 1), (3, 60_000, 3), (1, 5, 3)])
def test_images_of_any_shape_are_analysed(inspect, shape):
    pixels = np.arange(np.prod(shape), dtype=np.uint64).astype(np.uint8).reshape(shape)
    assert summary(inspect([datum(pixels, 0)]))["problems"] == []


def of_file(number, **changes):
    """A record of an image file, with its name."""
    content = encoded(picture(number, 20), "PNG")
    known = {"encoded": content, "format": "png", "height": 20, "width": 20, "filename": f"cat/{number}.png"}
    return example.serialize(Image(**(known | changes)), 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"height": 21}, "image_size"),
        ({"format": "jpg"}, "image_format"),
        ({"format": "gif"}, "schema"),
        ({"encoded": encoded(picture(3, 20), "PNG")[:-30]}, "image_decode"),
    ],
)
def test_a_problem_of_a_record_names_the_image_where_the_record_does(inspect, changes, code):
    (found,) = inspect([of_file(1), of_file(2), of_file(3, **changes), of_file(4)])
    (problem,) = found.problems
    assert (problem.code, problem.record) == (code, 2)
    assert problem.message[-17:] == "; image cat/3.png"
