"""Every kind of damage to a record folder is found and reported at its place."""

import os
import random
import shutil
import struct
from itertools import pairwise

import numpy as np
import pytest
from data.validation.damage import (
    DAMAGE,
    OF_RECORDS,
    SHARD,
    changed_record,
    content,
    edit_manifest,
    offset,
    rewrite,
    with_record,
)
from support.records import data_in, datum, entry, offsets_in, write_folder

from perennial.base import documents, files
from perennial.base.config.data import ComputeConfig
from perennial.base.errors import DataError
from perennial.data.records import manifest
from perennial.data.tfrecord import bulk, example, framing
from perennial.data.validation import inspection, integrity

# Small records are parsed in bulk or one by one: damage is found either way.
WORK = {
    "bulk": (8, integrity.PART_BYTES),
    "one by one": (bulk.MINIMUM, integrity.PART_BYTES),
    "small parts": (2, 500),
}


@pytest.fixture
def work(request, monkeypatch):
    """Least records that are parsed in bulk, and the size of a part of a shard."""
    least, size = WORK[request.param]
    monkeypatch.setattr(bulk, "MINIMUM", least)
    monkeypatch.setattr(integrity, "PART_BYTES", size)


def works(*names):
    return pytest.mark.parametrize("work", names or WORK, indirect=True)


def check(folder, splits=None, **options):
    found = integrity.check(folder, splits, **options)
    assert all(problem.file and problem.message for problem in found.problems)
    return found


def codes(folder, splits=None, **options):
    return [problem.code for problem in check(folder, splits, **options).problems]


def placed(findings):
    """Code, record and offset of every problem of a record; all are in the shard of train."""
    assert {problem.file for problem in findings.problems} <= {SHARD}
    return [(each.code, each.record, each.offset) for each in findings.problems if each.record is not None]


def framed(records):
    return b"".join(map(framing.frame, records))


@works()
def test_a_valid_folder_has_no_problems_and_all_its_facts(folder, work):
    found = check(folder)
    assert found.problems == []
    assert {split: labels.tolist() for split, labels in found.per_class.items()} == {
        "train": [10, 10],
        "validation": [1, 1],
        "test": [1, 1],
    }
    assert found.statistics["train"].sizes == {(2, 2, 1): 20}
    assert np.array_equal(found.statistics["train"].histograms[1][0], np.repeat([4, 0], [20, 236]))
    begins = offsets_in(content(folder))
    assert found.spans[SHARD].tolist() == [
        [start, stop - start - framing.OVERHEAD] for start, stop in pairwise(begins)
    ]


@pytest.mark.parametrize("code", DAMAGE)
def test_each_damage_is_one_error_under_its_code_at_its_place(folder, code):
    place = {code: (7, offset(folder, 7)) for code in OF_RECORDS}
    place |= dict.fromkeys(("record_truncated", "length_crc"), (20, offset(folder, 20)))
    DAMAGE[code](folder)
    found = check(folder)
    (problem,) = found.problems
    assert (problem.code, problem.severity) == (code, "error")
    assert found.codes == {code: 1}
    assert (problem.record, problem.offset) == place.get(code, (None, None))
    assert " at 0x" not in problem.message, "an address in memory differs from run to run"


@works()
@pytest.mark.parametrize("decode", ["all", "sample", "none"])
def test_images_are_decoded_and_hashed_as_configured(folder, tmp_path, work, decode):
    DAMAGE["data_crc"](folder)
    found = check(folder, ["train"], decode=decode, fingerprints=tmp_path)
    pixels = sum(histogram.sum() for histogram in found.statistics["train"].histograms.values())
    assert pixels == {"all": 19 * 4, "sample": 2 * 4, "none": 0}[decode]
    assert found.images.count == (0 if decode == "none" else 19)


@works()
def test_a_damaged_image_is_found_and_not_hashed_where_images_are_decoded(folder, tmp_path, work):
    DAMAGE["image_decode"](folder)
    assert codes(folder, decode="none") == []
    found = check(folder, ["train"], fingerprints=tmp_path)
    assert [problem.code for problem in found.problems] == ["image_decode"]
    assert found.images.count == 19


@pytest.fixture
def short(folder):
    """A shard of three records, of which every byte can be damaged in turn."""
    (folder / SHARD).write_bytes(content(folder)[: offset(folder, 3)])
    edit_manifest(folder, examples=3, per_class=[2, 1], shard_examples=3)
    rewrite(folder, content(folder))
    return folder


def test_every_truncation_is_reported_at_its_record(short):
    begins, wrong = offsets_in(content(short)), []
    for size in reversed(range(begins[-1])):
        os.truncate(short / SHARD, size)
        number = sum(begin <= size for begin in begins) - 1
        expected = [] if size in begins else [("record_truncated", number, begins[number])]
        found = check(short, ["train"])
        if placed(found) != expected or found.codes["shard_bytes"] != 1:
            wrong.append(size)
    assert wrong == []


@pytest.mark.fast_rows("bulk")
@works("one by one", "bulk")
def test_every_flipped_byte_is_reported_at_its_record(short, work):
    whole, begins, wrong = bytearray(content(short)), offsets_in(content(short)), []
    bits = random.Random(0)
    for place in range(0, len(whole), 3):  # test_framing flips every bit
        bit = 1 << bits.randrange(8)
        whole[place] ^= bit
        (short / SHARD).write_bytes(whole)
        whole[place] ^= bit
        number = sum(begin <= place for begin in begins) - 1
        code = "length_crc" if place < begins[number] + framing.HEADER.size else "data_crc"
        if placed(check(short, ["train"])) != [(code, number, begins[number])]:
            wrong.append(place)
    assert wrong == []


@pytest.mark.parametrize("size", [1, 11, 12, 39, 4096])
@pytest.mark.parametrize("junk", [b"\0", b"\xff", b"junk "], ids=["zeros", "ones", "text"])
def test_trailing_junk_is_reported_after_the_last_record(folder, size, junk):
    rewrite(folder, content(folder) + (junk * size)[:size])
    code = "record_truncated" if size < framing.HEADER.size else "length_crc"
    assert placed(check(folder, ["train"])) == [(code, 20, len(content(folder)) - size)]


@pytest.mark.parametrize("size", [1, 12, 100, 4096])
@pytest.mark.parametrize("number", [0, 7, 19])
def test_a_hole_of_zeros_is_reported_at_the_record_where_it_begins(folder, size, number):
    whole, begin = content(folder), offset(folder, number)
    rewrite(folder, (whole[:begin] + bytes(size) + whole[begin + size :])[: max(len(whole), begin + size)])
    assert placed(check(folder, ["train"]))[0][1:] == (number, begin)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda whole: bytes(len(whole)), ["length_crc", "shard_examples", "shard_digest"]),
        (lambda whole: b"", ["shard_examples", "shard_bytes"]),
        (lambda whole: b"<html>404 not found</html>", ["length_crc", "shard_examples", "shard_bytes"]),
        (
            lambda whole: struct.pack("<Q", 1 << 60) + whole[8:],
            ["length_crc", "shard_examples", "shard_digest"],
        ),
    ],
    ids=["zeros", "empty", "HTML", "huge length"],
)
def test_a_file_of_another_kind_is_reported(folder, damage, expected):
    (folder / SHARD).write_bytes(damage(content(folder)))
    assert codes(folder) == expected


# Changes of the order and number of records, and whether the manifest's size and digest would not show them.
SHUFFLES = {
    "dropped first": (lambda records: records[1:], ["shard_examples"]),
    "dropped": (lambda records: records[:7] + records[8:], ["shard_examples"]),
    "dropped last": (lambda records: records[:-1], ["shard_examples"]),
    "twice": (lambda records: [*records[:8], *records[7:]], ["shard_examples"]),
    "swapped": (lambda records: [records[1], records[0], *records[2:]], []),
    "reversed": (lambda records: records[::-1], []),
    "one for another": (lambda records: [*records[:7], records[9], *records[8:]], []),
}


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_records_that_are_not_those_of_the_manifest_are_found(folder, shuffle):
    change, without_digest = SHUFFLES[shuffle]
    changed = framed(change(data_in(content(folder))))
    (folder / SHARD).write_bytes(changed)
    assert {"shard_digest", "shard_bytes"} & set(codes(folder))
    rewrite(folder, changed)
    assert codes(folder) == without_digest


@pytest.fixture
def sharded(tmp_path):
    """A valid folder with three shards of ten records each to train on."""
    records = [datum(np.full((2, 2), number, np.uint8), number % 2) for number in range(34)]
    shards = [records[:10], records[10:20], records[20:30]]
    splits = {"train": shards, "validation": [records[30:32]], "test": [records[32:]]}
    write_folder(tmp_path / "records", splits, ["cat", "dog"])
    return tmp_path / "records"


def shard(folder, number):
    return folder / f"pets_train_{number:05d}-of-00003.tfrecord"


def swap(folder):
    first, second = shard(folder, 0).read_bytes(), shard(folder, 1).read_bytes()
    shard(folder, 0).write_bytes(second)
    shard(folder, 1).write_bytes(first)


def listed_twice(folder):
    value = documents.read_json(folder / manifest.FILE)
    value["splits"]["train"]["shards"].append(value["splits"]["train"]["shards"][0])
    files.write_json(folder / manifest.FILE, value)


def becomes_folder(folder):
    shard(folder, 1).unlink()
    shard(folder, 1).mkdir()


SHARDS = {
    "valid": (lambda folder: None, []),
    "missing": (lambda folder: shard(folder, 1).unlink(), ["shard_missing"]),
    "renamed": (
        lambda folder: shard(folder, 1).rename(folder / "pets_train.tfrecord-1"),
        ["shard_unexpected", "shard_missing"],
    ),
    "copied": (lambda folder: shutil.copy(shard(folder, 1), folder / "a.tfrecord"), ["shard_unexpected"]),
    "swapped": (swap, ["shard_digest"] * 2),
    "replaced": (lambda folder: shutil.copy(shard(folder, 0), shard(folder, 1)), ["shard_digest"]),
    "folder": (becomes_folder, ["shard_missing"]),
    "listed twice": (listed_twice, ["split_examples"]),
}


@pytest.mark.parametrize("name", SHARDS)
def test_damage_to_one_of_several_shards_is_found(sharded, name):
    damage, expected = SHARDS[name]
    damage(sharded)
    assert codes(sharded) == expected


def test_a_file_name_that_is_not_utf_8_is_reported_and_escaped(folder):
    (folder / os.fsdecode(b"\xff\x1b[2J.tfrecord")).touch()
    (problem,) = check(folder).problems
    assert (problem.code, problem.file) == ("shard_unexpected", "\\udcff\\x1b[2J.tfrecord")
    files.write_json(folder / "report.json", {"file": problem.file})


def test_any_number_of_processes_finds_the_same(sharded, tmp_path, monkeypatch):
    damaged = bytearray(shard(sharded, 1).read_bytes())
    damaged[40] ^= 1
    shard(sharded, 1).write_bytes(damaged)
    monkeypatch.setattr(integrity, "PART_BYTES", 1000)
    monkeypatch.setitem(integrity.PARALLEL_BYTES, "all", 0)
    found = []
    for processes in (1, 2, 4):
        where = ComputeConfig(engine="processes", processes=processes)
        each = check(sharded, fingerprints=tmp_path, where=where)
        hashes = each.images.column("pixels").tolist()
        facts = [(split, one.brightness.tolist(), one.sizes) for split, one in each.statistics.items()]
        found.append((each.problems, each.codes, hashes, facts, {k: v.tolist() for k, v in each.spans.items()}))
    assert found[0][0]
    assert found == [found[0]] * 3


@works("small parts")
def test_records_in_other_parts_of_a_shard_are_numbered_consecutively(folder, work):
    whole, begins = content(folder), offsets_in(content(folder))
    for number, begin in enumerate(begins[:-1]):
        rewrite(folder, with_record(folder, number, lambda data: changed_record(data, label=5)))
        assert placed(check(folder, ["train"])) == [("label_range", number, begin)]
        rewrite(folder, whole)


def test_a_record_that_is_larger_than_a_part_is_one_alone(folder, monkeypatch):
    inspect, sizes = integrity.inspect, []

    def seen(request, part):
        sizes.append(None if part.spans is None else len(part.spans))
        return inspect(request, part)

    monkeypatch.setattr(integrity, "inspect", seen)
    monkeypatch.setattr(integrity, "PART_BYTES", 1)
    assert check(folder, ["train"]).problems == []
    assert sizes == [None, *[1] * 20]


def feature_changed(change):
    """A change of a record's features, as a change of its data."""

    def changed(data):
        message = example.Example()
        message.ParseFromString(data)
        change(message.features.feature)
        return message.SerializeToString()

    return changed


SCHEMA = {
    "no label": feature_changed(lambda f: f.pop("image/class/label")),
    "another type of height": feature_changed(lambda f: f["image/height"].float_list.value.append(1)),
    "no image": feature_changed(lambda f: f["image/encoded"].Clear()),
    "two labels": feature_changed(lambda f: f["image/class/label"].int64_list.value.append(1)),
    "another format": feature_changed(lambda f: f["image/format"].bytes_list.value.__setitem__(0, b"gif")),
    "nothing": lambda data: b"",
    "garbage": lambda data: b"\xff" * 50,
    "invalid UTF-8": lambda data: data.replace(b"image/height", b"image/h\xff\xfeght"),
    "half a message": lambda data: data[: len(data) // 2],
}
MISMATCHES = {
    "label_range": [{"label": label} for label in (2, -1, 2**63 - 1)],
    "image_size": [{"height": 3}, {"width": 2**40}, {"height": -2, "width": -2}, {"height": 0, "width": 0}],
    "image_format": [{"format": "jpg"}, {"encoded": b""}, {"encoded": b"BM" + bytes(60)}],
}


def png_changed(start, stop):
    """A PNG with zeros in a part that only TensorFlow's decoder reads."""

    def damaged(data):
        encoded = bytearray(example.parse(data)[1])
        encoded[start:stop] = bytes(len(encoded[start:stop])) if stop else b""
        return changed_record(data, encoded=bytes(encoded))

    return damaged


RECORDS = [
    *((change, "schema") for change in SCHEMA.values()),
    *(
        (lambda data, fields=fields: changed_record(data, **fields), code)
        for code, changes in MISMATCHES.items()
        for fields in changes
    ),
    (png_changed(-12, None), "image_decode"),
    (png_changed(-16, -12), "image_decode"),
]


@works("bulk", "one by one")
@pytest.mark.parametrize(("change", "code"), RECORDS)
def test_a_record_with_wrong_content_is_reported_at_its_place(folder, work, change, code):
    place = offset(folder, 7)
    rewrite(folder, with_record(folder, 7, change))
    assert placed(check(folder)) == [(code, 7, place)]


def test_many_problems_are_all_counted_and_the_first_listed(folder, monkeypatch):
    monkeypatch.setattr(inspection, "LISTED", 5)
    rewrite(folder, framed(changed_record(data, label=9) for data in data_in(content(folder))))
    found = check(folder)
    assert len(found.problems) == 5
    assert found.codes == {"label_range": 20}


def test_a_split_that_the_manifest_lacks_is_found(folder):
    value = documents.read_json(folder / manifest.FILE)
    del value["splits"]["test"]
    files.write_json(folder / manifest.FILE, value)
    assert codes(folder) == ["shard_unexpected"]
    assert "split_examples" in codes(folder, ["train", "test"])
    edit_manifest(folder, examples=0, per_class=[0, 0], shards=[])
    assert codes(folder) == ["shard_unexpected", "shard_unexpected", "split_examples"]
    files.write_json(folder / manifest.FILE, {**value, "splits": {}})
    assert codes(folder) == [*["shard_unexpected"] * 3, "split_examples"]


def test_counts_of_the_validation_split_are_compared_unless_it_is_empty(folder):
    value = documents.read_json(folder / manifest.FILE)
    part = value["splits"]["validation"]
    for changes, expected in (
        ({"per_class": [2, 0]}, ["per_class"]),
        ({"examples": 0, "per_class": [0, 0], "shards": []}, ["shard_unexpected"]),
    ):
        part.update(changes)
        files.write_json(folder / manifest.FILE, value)
        assert codes(folder) == expected


PER_CLASS = ([9, 11], [20, 0], [10, 11], [20], [10, 10, 0], [])


@pytest.mark.parametrize("changes", [{"unlabelled": 1}, *({"per_class": each} for each in PER_CLASS)])
def test_counts_of_other_examples_are_found(folder, changes):
    edit_manifest(folder, **changes)
    assert codes(folder) == ["per_class"]


@pytest.mark.parametrize(
    "text", [None, b"", b"0:cat\n", b"0:cat\n1:dog", b"1:dog\n0:cat\n", b"\xff\xfe", b"0:cat\r\n1:dog\r\n"]
)
def test_other_labels_are_found(folder, text):
    (folder / "labels.txt").unlink() if text is None else (folder / "labels.txt").write_bytes(text)
    assert codes(folder) == ["labels_mismatch"]


def test_a_valid_folder_gives_its_manifest_until_a_split_is_damaged(folder):
    assert entry(folder / SHARD) == manifest.load(folder).splits["train"].shards[0]
    assert integrity.require_valid(folder, ["train"]) == manifest.load(folder)
    (folder / SHARD).write_bytes(framed(data_in(content(folder))[::-1]))
    assert integrity.require_valid(folder, ["test"]) == manifest.load(folder)
    with pytest.raises(DataError, match=r"\[shard_digest\]"):
        integrity.require_valid(folder, ["train"])


@pytest.mark.parametrize("name", [manifest.FILE, "labels.txt", SHARD])
def test_a_folder_in_place_of_a_file_is_found(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(DataError):
        integrity.require_valid(folder, ["train"])
