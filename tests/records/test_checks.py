"""Everything that can be wrong with a record folder is found, and said with its place."""

import os
import random
import shutil
from itertools import pairwise

import numpy as np
import pytest
from support.harm import HARM, SHARD, content, edit_manifest, offset, rewrite, said, with_record
from support.records import data_in, datum, entry, offsets_in, write_folder

from perennial import files
from perennial.errors import DataError
from perennial.records import checks, manifest
from perennial.tfrecord import example, framing, kinds


def codes(folder, splits=None):
    return [problem.code for problem in checks.check(folder, splits).problems]


def placed(findings):
    """Code, record and offset of every problem that has a place; all are in the one shard of train."""
    assert {problem.file for problem in findings.problems} <= {SHARD}
    return [(each.code, each.record, each.offset) for each in findings.problems if each.record is not None]


def places(folder):
    return placed(checks.check(folder, ["train"]))


# Small records are parsed many at once, or one by one: damage is found either way.
@pytest.fixture(params=[8, kinds.FEWEST], ids=["at once", "one by one"])
def folder_read(request, folder, monkeypatch):
    monkeypatch.setattr(kinds, "FEWEST", request.param)
    return folder


def test_a_sound_folder_has_no_problems(folder_read):
    assert checks.check(folder_read).problems == []


def test_the_examples_of_a_sound_folder_are_counted(folder_read):
    counted = checks.check(folder_read).per_class
    assert {split: labels.tolist() for split, labels in counted.items()} == {
        "train": [10, 10],
        "validation": [1, 1],
        "test": [1, 1],
    }


def test_the_sizes_of_a_sound_folder_are_counted(folder_read):
    assert checks.check(folder_read).statistics["train"].sizes == {(2, 2, 1): 20}


def test_the_pixels_of_a_sound_folder_are_counted(folder_read):
    expected = np.repeat([4, 0], [20, 236])
    assert np.array_equal(checks.check(folder_read).statistics["train"].histograms[1][0], expected)


def test_the_place_of_every_record_is_kept(folder_read):
    begins = offsets_in(content(folder_read))
    expected = [[start, stop - start - framing.AROUND] for start, stop in pairwise(begins)]
    assert checks.check(folder_read).places[SHARD].tolist() == expected


def test_one_image_in_ten_is_decoded_on_request(folder_read):
    findings = checks.check(folder_read, decode="sample")
    assert findings.statistics["train"].histograms[1].sum() == 2 * 4


def test_a_damaged_image_is_not_seen_where_none_is_decoded(folder_read):
    HARM["image_decode"](folder_read)
    assert checks.check(folder_read, decode="none").problems == []


@pytest.mark.parametrize("decode", ["all", "sample"])
def test_every_sound_record_has_a_fingerprint_however_many_are_decoded(folder_read, decode):
    findings = checks.check(folder_read, ["train"], decode=decode, fingerprints=True)
    (seen,) = findings.seen
    assert (seen.numbers.tolist(), len(np.unique(seen.fingerprints.digests, axis=0))) == (list(range(20)), 20)


@pytest.mark.parametrize("decode", ["all", "sample"])
def test_a_damaged_record_has_no_fingerprint(folder_read, decode):
    HARM["data_crc"](folder_read)
    (seen,) = checks.check(folder_read, ["train"], decode=decode, fingerprints=True).seen
    assert seen.numbers.tolist() == [number for number in range(20) if number != 7]


def test_no_record_has_a_fingerprint_where_no_image_is_looked_at(folder_read):
    assert checks.check(folder_read, decode="none", fingerprints=True).seen == []


def test_an_image_that_does_not_decode_has_no_fingerprint(folder_read):
    HARM["image_decode"](folder_read)
    (seen,) = checks.check(folder_read, ["train"], fingerprints=True).seen
    assert (7 in seen.numbers, len(seen.fingerprints.digests)) == (False, 19)


def test_every_truncation_is_reported_at_its_record(folder):
    whole, begins, wrong = content(folder), offsets_in(content(folder)), []
    for size in reversed(range(len(whole))):
        os.truncate(folder / SHARD, size)
        number = sum(begin <= size for begin in begins) - 1
        expected = [] if size in begins else [("record_truncated", number, begins[number])]
        findings = checks.check(folder, ["train"])
        if placed(findings) != expected or findings.codes["shard_bytes"] != 1:
            wrong.append(size)
    assert wrong == []


def test_every_truncation_between_records_is_found_without_size_and_digest(folder):
    whole, found = content(folder), []
    for size in offsets_in(whole)[:-1]:
        rewrite(folder, whole[:size])
        found.append(codes(folder, ["train"]))
    assert found == [["shard_examples"]] * 20


@pytest.mark.parametrize(("together", "flips"), [(kinds.FEWEST, 2000), (8, 500)], ids=["one by one", "at once"])
def test_every_flipped_bit_is_reported_at_its_record(folder, monkeypatch, together, flips):
    monkeypatch.setattr(kinds, "FEWEST", together)
    whole, begins, wrong = bytearray(content(folder)), offsets_in(content(folder)), []
    for bit in random.Random(0).sample(range(8 * len(whole)), flips):
        whole[bit // 8] ^= 1 << bit % 8
        (folder / SHARD).write_bytes(whole)
        whole[bit // 8] ^= 1 << bit % 8
        number = sum(begin <= bit // 8 for begin in begins) - 1
        code = "length_crc" if bit // 8 < begins[number] + framing.HEADER.size else "data_crc"
        if placed(checks.check(folder, ["train"])) != [(code, number, begins[number])]:
            wrong.append(bit)
    assert wrong == []


@pytest.mark.parametrize("size", [*range(1, 40), 100, 1000, 4095, 4096])
@pytest.mark.parametrize("junk", [b"\0", b"\xff", b"junk "], ids=["zeros", "ones", "text"])
def test_trailing_junk_is_reported_after_the_last_record(folder, size, junk):
    rewrite(folder, content(folder) + (junk * size)[:size])
    code = "record_truncated" if size < framing.HEADER.size else "length_crc"
    assert places(folder) == [(code, 20, len(content(folder)) - size)]


@pytest.mark.parametrize("size", [1, 12, 100, 4096])
@pytest.mark.parametrize("number", [0, 7, 19])
def test_a_hole_of_zeros_is_reported_at_the_record_where_it_begins(folder, size, number):
    whole, begin = content(folder), offset(folder, number)
    rewrite(folder, (whole[:begin] + bytes(size) + whole[begin + size :])[: max(len(whole), begin + size)])
    assert places(folder)[0][1:] == (number, begin)


def test_a_sparse_file_of_the_right_size_is_reported(folder):
    size = len(content(folder))
    with (folder / SHARD).open("wb") as stream:
        stream.truncate(size)
    assert codes(folder) == ["length_crc", "shard_examples", "shard_digest"]


def test_an_empty_shard_is_reported(folder):
    (folder / SHARD).write_bytes(b"")
    assert codes(folder) == ["shard_examples", "shard_bytes"]


@pytest.mark.parametrize("content", [b"<html>404 not found</html>", b"\x1f\x8b\x08\0" + bytes(40)])
def test_a_file_of_another_kind_is_reported_at_its_begin(folder, content):
    rewrite(folder, content)
    assert places(folder) == [("length_crc", 0, 0)]


def framed(records):
    return b"".join(map(framing.frame, records))


SHUFFLES = {
    "dropped first": lambda records: records[1:],
    "dropped": lambda records: records[:7] + records[8:],
    "dropped last": lambda records: records[:-1],
    "twice": lambda records: [*records[:8], *records[7:]],
    "swapped": lambda records: [records[1], records[0], *records[2:]],
    "reversed": lambda records: records[::-1],
    "one for another": lambda records: [*records[:7], records[9], *records[8:]],
}


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_records_that_are_not_those_of_the_manifest_are_found(folder, shuffle):
    records = SHUFFLES[shuffle](data_in(content(folder)))
    (folder / SHARD).write_bytes(framed(records))
    found = codes(folder)
    assert ("shard_digest" in found) or ("shard_bytes" in found)


@pytest.mark.parametrize("shuffle", ["dropped first", "dropped", "dropped last", "twice"])
def test_another_number_of_records_is_found_although_size_and_digest_are_right(folder, shuffle):
    rewrite(folder, framed(SHUFFLES[shuffle](data_in(content(folder)))))
    assert codes(folder) == ["shard_examples"]


@pytest.fixture
def sharded(tmp_path):
    """A sound folder with three shards of ten records each to train on."""
    records = [datum(np.full((2, 2), number, np.uint8), number % 2) for number in range(34)]
    shards = [records[:10], records[10:20], records[20:30]]
    splits = {"train": shards, "validation": [records[30:32]], "test": [records[32:]]}
    write_folder(tmp_path / "records", splits, ["cat", "dog"])
    return tmp_path / "records"


def shard(folder, number):
    return folder / f"pets_train_{number:05d}-of-00003.tfrecord"


def test_a_folder_of_several_shards_is_sound(sharded):
    assert codes(sharded) == []


def test_a_missing_shard_is_named(sharded):
    shard(sharded, 1).unlink()
    (problem,) = checks.check(sharded).problems
    assert (problem.code, problem.file) == ("shard_missing", shard(sharded, 1).name)


def test_a_renamed_shard_is_missing_and_unexpected(sharded):
    shard(sharded, 1).rename(sharded / "pets_train.tfrecord-1")
    assert sorted(codes(sharded)) == ["shard_missing", "shard_unexpected"]


def test_a_shard_that_stands_twice_is_unexpected(sharded):
    shutil.copy(shard(sharded, 1), sharded / "copy.tfrecord")
    (problem,) = checks.check(sharded).problems
    assert (problem.code, problem.file) == ("shard_unexpected", "copy.tfrecord")


def test_shards_that_changed_places_are_found(sharded):
    first, second = shard(sharded, 0).read_bytes(), shard(sharded, 1).read_bytes()
    shard(sharded, 0).write_bytes(second)
    shard(sharded, 1).write_bytes(first)
    assert codes(sharded) == ["shard_digest", "shard_digest"]


def test_a_shard_in_the_place_of_another_is_found(sharded):
    shutil.copy(shard(sharded, 0), shard(sharded, 1))
    assert codes(sharded) == ["shard_digest"]


def test_a_folder_in_the_place_of_a_shard_is_missing(sharded):
    shard(sharded, 1).unlink()
    shard(sharded, 1).mkdir()
    assert codes(sharded) == ["shard_missing"]


def test_a_shard_of_another_version_of_the_data_is_found(sharded):
    records = data_in(shard(sharded, 1).read_bytes())
    records[3] = datum(np.full((2, 2), 255, np.uint8), 1)
    shard(sharded, 1).write_bytes(framed(records))
    assert codes(sharded) == ["shard_digest"]


def test_the_manifest_of_another_version_of_the_data_is_found(sharded):
    value = files.read_json(sharded / manifest.FILE)
    value["splits"]["train"]["shards"].reverse()
    for listed, number in zip(value["splits"]["train"]["shards"], range(3), strict=True):
        listed["file"] = shard(sharded, number).name
    files.write_json(sharded / manifest.FILE, value)
    assert codes(sharded) == ["shard_digest", "shard_digest"]


def test_a_shard_that_the_manifest_lists_twice_is_found(sharded):
    value = files.read_json(sharded / manifest.FILE)
    value["splits"]["train"]["shards"].append(value["splits"]["train"]["shards"][0])
    files.write_json(sharded / manifest.FILE, value)
    assert codes(sharded) != []


def test_only_the_shard_that_is_damaged_is_named(sharded):
    damaged = bytearray(shard(sharded, 1).read_bytes())
    damaged[40] ^= 1
    shard(sharded, 1).write_bytes(damaged)
    assert {problem.file for problem in checks.check(sharded).problems} == {shard(sharded, 1).name}


def test_records_in_other_parts_of_a_shard_are_numbered_through(folder_read, monkeypatch):
    monkeypatch.setattr(checks, "PART_BYTES", 500)
    begins, wrong = offsets_in(content(folder_read)), []
    for number, begin in enumerate(begins[:-1]):
        rewrite(folder_read, with_record(folder_read, number, lambda data: said(data, label=5)))
        if places(folder_read) != [("label_range", number, begin)]:
            wrong.append(number)
        rewrite(
            folder_read,
            with_record(folder_read, number, lambda data, label=number % 2: said(data, label=label)),
        )
    assert wrong == []


KEYS = ["image/class/label", "image/encoded", "image/format", "image/height", "image/width"]


def feature_changed(change):
    """A change of a record's features, as a change of its data."""

    def changed(data):
        message = example._Example()
        message.ParseFromString(data)
        change(message.features.feature)
        return message.SerializeToString()

    return changed


# What is wrong with a record, and what the message says of it.
SCHEMA = {
    **{f"no {key}": (feature_changed(lambda f, key=key: f.pop(key)), f"{key} is missing") for key in KEYS},
    **{
        f"another type of {key}": (
            feature_changed(lambda f, key=key: f[key].float_list.value.append(1)),
            f"{key} is float_list, expected ",
        )
        for key in KEYS
    },
    **{
        f"no value of {key}": (feature_changed(lambda f, key=key: f[key].Clear()), f"{key} is empty, expected ")
        for key in KEYS
    },
    "two labels": (
        feature_changed(lambda f: f["image/class/label"].int64_list.value.append(1)),
        "image/class/label has 2 values, expected 1",
    ),
    "another format": (
        feature_changed(lambda f: f["image/format"].bytes_list.value.__setitem__(0, b"gif")),
        "image/format is 'gif', expected png or jpg or jpeg",
    ),
    "nothing at all": (lambda data: b"", "image/class/label is missing"),
    "garbage": (lambda data: b"\xff" * 50, "not a tf.Example: "),
    "a text that is none": (lambda data: data.replace(b"image/height", b"image/h\xff\xfeght"), ""),
    "half a message": (lambda data: data[: len(data) // 2], ""),
}


@pytest.mark.parametrize("kind", SCHEMA)
def test_a_record_of_another_form_is_told_with_what_is_wrong(folder_read, kind):
    change, told = SCHEMA[kind]
    place = offset(folder_read, 7)
    rewrite(folder_read, with_record(folder_read, 7, change))
    (problem,) = checks.check(folder_read).problems
    assert (problem.code, problem.record, problem.offset) == ("schema", 7, place)
    assert problem.message.startswith(told)


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"label": 2}, "label_range", "label 2, expected 0 to 1"),
        ({"label": -1}, "label_range", "label -1, expected 0 to 1"),
        ({"label": 2**63 - 1}, "label_range", "label 9223372036854775807, expected 0 to 1"),
        ({"height": 3}, "image_size", "image of (2, 2), its record says (3, 2)"),
        ({"width": 2**40}, "image_size", "image of (2, 2), its record says (2, 1099511627776)"),
        ({"height": -2, "width": -2}, "image_size", "image of (2, 2), its record says (-2, -2)"),
        ({"height": 0, "width": 0}, "image_size", "image of (2, 2), its record says (0, 0)"),
        ({"format": "jpg"}, "image_format", "its record says jpg, the image is png"),
        ({"encoded": b""}, "image_format", "its record says png, the image is neither PNG nor JPEG"),
        (
            {"encoded": b"BM" + bytes(60)},
            "image_format",
            "its record says png, the image is neither PNG nor JPEG",
        ),
    ],
)
def test_a_record_that_disagrees_with_its_image_is_told_with_both(folder_read, changes, code, told):
    rewrite(folder_read, with_record(folder_read, 7, lambda data: said(data, **changes)))
    (problem,) = checks.check(folder_read).problems
    assert (problem.code, problem.record, problem.message) == (code, 7, told)


@pytest.mark.parametrize(("start", "stop"), [(-12, None), (-16, -12)], ids=["last chunk", "checksum"])
def test_a_png_file_that_tensorflow_refuses_is_found(folder_read, start, stop):
    def damaged(data):
        encoded = bytearray(example.parse(data)[1])
        encoded[start:stop] = bytes(len(encoded[start:stop])) if stop else b""
        return said(data, encoded=bytes(encoded))

    rewrite(folder_read, with_record(folder_read, 7, damaged))
    assert codes(folder_read) == ["image_decode"]


def test_many_problems_are_all_counted_though_not_all_are_listed(folder, monkeypatch):
    monkeypatch.setattr("perennial.records.inspection.LISTED", 5)
    rewrite(folder, framed(said(data, label=9) for data in data_in(content(folder))))
    findings = checks.check(folder)
    assert (len(findings.problems), findings.codes) == (5, {"label_range": 20})


def test_a_changed_label_is_found_although_every_checksum_is_right(folder):
    (folder / SHARD).write_bytes(with_record(folder, 7, lambda data: said(data, label=0)))
    assert codes(folder) == ["shard_digest"]


def test_a_changed_label_is_found_although_the_digest_is_right(folder):
    rewrite(folder, with_record(folder, 7, lambda data: said(data, label=0)))
    assert codes(folder) == ["per_class"]


def test_a_split_that_the_manifest_lacks_is_found(folder):
    value = files.read_json(folder / manifest.FILE)
    del value["splits"]["test"]
    files.write_json(folder / manifest.FILE, value)
    assert codes(folder) == ["shard_unexpected"]


def test_a_split_that_is_asked_for_and_not_there_is_found(folder):
    value = files.read_json(folder / manifest.FILE)
    del value["splits"]["test"]
    files.write_json(folder / manifest.FILE, value)
    assert "split_examples" in codes(folder, ["train", "test"])


def test_a_split_without_examples_is_found(folder):
    edit_manifest(folder, examples=0, per_class=[0, 0], shards=[])
    assert codes(folder) == ["shard_unexpected", "split_examples"]


@pytest.mark.parametrize("per_class", [[9, 11], [20, 0], [10, 11], [20], [10, 10, 0], []])
def test_counts_of_other_examples_are_found(folder, per_class):
    edit_manifest(folder, per_class=per_class)
    assert codes(folder) == ["per_class"]


@pytest.mark.parametrize(
    "text", [b"", b"0:cat\n", b"0:cat\n1:dog", b"1:dog\n0:cat\n", b"\xff\xfe", b"0:cat\r\n1:dog\r\n"]
)
def test_other_labels_are_found(folder, text):
    (folder / "labels.txt").write_bytes(text)
    assert codes(folder) == ["labels_mismatch"]


def test_missing_labels_are_told(folder):
    (folder / "labels.txt").unlink()
    assert [problem.message for problem in checks.check(folder).problems] == [
        "expected the 2 classes of the manifest, it is missing"
    ]


def test_only_the_splits_that_are_asked_for_are_read(folder):
    HARM["data_crc"](folder)
    assert codes(folder, ["test"]) == []


def test_a_folder_without_a_manifest_cannot_be_checked(tmp_path):
    with pytest.raises(DataError, match=r"manifest\.json does not exist"):
        checks.check(tmp_path)


def test_a_sound_folder_gives_its_manifest(folder):
    assert checks.require_sound(folder, ["train"]) == manifest.load(folder)


def test_a_harmed_folder_is_refused_with_the_place(folder):
    place = offset(folder, 7)
    HARM["data_crc"](folder)
    with pytest.raises(DataError, match=rf"train\.tfrecord record 7 at byte {place}: .* \[data_crc\]"):
        checks.require_sound(folder, ["train"])


def test_a_shard_that_is_changed_after_validation_is_refused(folder):
    checks.require_sound(folder, ["train"])
    (folder / SHARD).write_bytes(framed(data_in(content(folder))[::-1]))
    with pytest.raises(DataError, match=r"\[shard_digest\]"):
        checks.require_sound(folder, ["train"])


def test_the_entry_of_a_shard_is_what_the_tests_compare_with(folder):
    assert entry(folder / SHARD) == manifest.load(folder).splits["train"].shards[0]
