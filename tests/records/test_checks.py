"""Everything that can be wrong with a record folder is found, and said with its place."""

import io
from dataclasses import replace

import PIL.Image
import pytest

from perennial import files
from perennial.errors import DataError
from perennial.records import checks, manifest
from perennial.tfrecord import example, framing

SHARD = "train.tfrecord"


def edit_manifest(folder, **changes):
    """Changes values of the train split's manifest, or of its only shard's."""
    value = files.read_json(folder / manifest.FILE)
    split = value["splits"]["train"]
    for key, change in changes.items():
        part = split["shards"][0] if key.startswith("shard_") else split
        part[key.removeprefix("shard_")] = change
    files.write_json(folder / manifest.FILE, value)


def rewrite(folder, content, **changes):
    """Gives the train shard another content, and the manifest its size and digest."""
    (folder / SHARD).write_bytes(content)
    digest = files.sha256(folder / SHARD)
    edit_manifest(folder, shard_bytes=len(content), shard_sha256=digest, **changes)


def content(folder):
    return (folder / SHARD).read_bytes()


def offset(folder, number):
    return [place for place, _ in framing.walk(content(folder))][number]


def flip(folder, place):
    damaged = bytearray(content(folder))
    damaged[place] ^= 1
    return bytes(damaged)


def with_record(folder, number, change):
    """The shard's content with one record changed, all checksums right."""
    records = [data for _, data in framing.walk(content(folder))]
    records[number] = change(records[number])
    return b"".join(map(framing.frame, records))


def relabelled(data, label):
    return example.serialize(example.parse(data).image, label)


def reimaged(data, **changes):
    parsed = example.parse(data)
    return example.serialize(replace(parsed.image, **changes), parsed.label)


# Each does one kind of harm; what the manifest says is made to agree with the rest.
HARM = {
    "labels_mismatch": lambda folder: (folder / "labels.txt").write_text("0:cat\n1:dgo\n"),
    "shard_missing": lambda folder: (folder / SHARD).unlink(),
    "shard_unexpected": lambda folder: (folder / "more.tfrecord").touch(),
    "shard_bytes": lambda folder: edit_manifest(folder, shard_bytes=1),
    "shard_digest": lambda folder: edit_manifest(folder, shard_sha256="0" * 64),
    "shard_examples": lambda folder: rewrite(folder, content(folder)[: offset(folder, 19)]),
    "split_examples": lambda folder: edit_manifest(folder, examples=21),
    "per_class": lambda folder: edit_manifest(folder, per_class=[9, 11]),
    "record_truncated": lambda folder: rewrite(folder, content(folder)[:-1]),
    "length_crc": lambda folder: rewrite(folder, flip(folder, offset(folder, 19))),
    "data_crc": lambda folder: rewrite(folder, flip(folder, offset(folder, 7) + 20)),
    "schema": lambda folder: rewrite(folder, with_record(folder, 7, lambda data: b"")),
    "label_range": lambda folder: rewrite(folder, with_record(folder, 7, lambda data: relabelled(data, 2))),
    "image_decode": lambda folder: rewrite(
        folder, with_record(folder, 7, lambda data: reimaged(data, encoded=b"no image"))
    ),
    "image_size": lambda folder: rewrite(folder, with_record(folder, 7, lambda data: reimaged(data, height=3))),
}
OF_RECORDS = ("data_crc", "schema", "label_range", "image_decode", "image_size")


def test_every_code_has_its_harm():
    assert list(HARM) == list(checks.CODES)


def test_a_sound_folder_has_no_problems(folder):
    assert checks.check(folder).problems == []


def test_the_examples_of_a_sound_folder_are_counted(folder):
    assert checks.check(folder).examples == {"train": 20, "validation": 2, "test": 2}


def test_the_sizes_and_pixels_of_a_sound_folder_are_counted(folder):
    findings = checks.check(folder)
    assert (findings.sizes, findings.pixels, findings.pixel_sum) == ({(2, 2, 1): 24}, 96, 4 * (190 + 1 + 1))


@pytest.mark.parametrize("code", HARM)
def test_each_harm_is_found_under_its_code_alone(folder, code):
    HARM[code](folder)
    assert [problem.code for problem in checks.check(folder).problems] == [code]


@pytest.mark.parametrize("code", OF_RECORDS)
def test_a_harmed_record_is_told_with_file_number_and_offset(folder, code):
    place = offset(folder, 7)
    HARM[code](folder)
    (problem,) = checks.check(folder).problems
    assert (problem.file, problem.record, problem.offset) == (SHARD, 7, place)


@pytest.mark.parametrize("code", HARM)
def test_the_same_harm_is_told_in_the_same_words(folder, code):
    HARM[code](folder)
    (problem,) = checks.check(folder).problems
    assert " at 0x" not in problem.message, "an address in memory differs from run to run"


@pytest.mark.parametrize("kind", ["TIFF", "GIF", "BMP"])
def test_an_image_of_a_format_that_training_does_not_take_is_found(folder, kind):
    image = io.BytesIO()
    PIL.Image.new("L", (2, 2)).save(image, kind)
    rewrite(folder, with_record(folder, 7, lambda data: reimaged(data, encoded=image.getvalue())))
    assert [problem.code for problem in checks.check(folder).problems] == ["image_decode"]


@pytest.mark.parametrize(("start", "stop"), [(-12, None), (-16, -12)], ids=["last chunk", "checksum"])
def test_a_png_file_that_tensorflow_refuses_is_found(folder, start, stop):
    def damaged(data):
        encoded = bytearray(example.parse(data).image.encoded)
        encoded[start:stop] = bytes(len(encoded[start:stop])) if stop else b""
        return reimaged(data, encoded=bytes(encoded))

    rewrite(folder, with_record(folder, 7, damaged))
    assert [problem.code for problem in checks.check(folder).problems] == ["image_decode"]


def test_every_cut_of_a_shard_is_found(folder):
    whole, silent = content(folder), []
    for size in range(len(whole)):
        (folder / SHARD).write_bytes(whole[:size])
        if not checks.check(folder, ["train"], decode=False).problems:
            silent.append(size)
    assert silent == []


def test_every_cut_of_a_shard_is_found_without_its_size_and_digest(folder):
    """Cuts between records leave sound frames: the number of examples tells."""
    cuts = [place for place, _ in framing.walk(content(folder))]
    whole, found = content(folder), []
    for size in cuts:
        rewrite(folder, whole[:size])
        found.append([problem.code for problem in checks.check(folder, ["train"]).problems])
    assert found == [["shard_examples"]] * 20


def test_every_flipped_bit_of_a_record_is_found_at_its_place(folder):
    whole, place, wrong = bytearray(content(folder)), offset(folder, 7), []
    for bit in range(place * 8, offset(folder, 8) * 8):
        whole[bit // 8] ^= 1 << bit % 8
        (folder / SHARD).write_bytes(whole)
        whole[bit // 8] ^= 1 << bit % 8
        problems = checks.check(folder, ["train"], decode=False).problems
        places = [(each.record, each.offset) for each in problems if each.record is not None]
        if places != [(7, place)]:
            wrong.append(bit)
    assert wrong == []


def test_a_changed_label_is_found_although_every_checksum_is_right(folder):
    (folder / SHARD).write_bytes(with_record(folder, 7, lambda data: relabelled(data, 0)))
    assert [problem.code for problem in checks.check(folder).problems] == ["shard_digest"]


def test_a_changed_label_is_found_although_the_digest_is_right(folder):
    rewrite(folder, with_record(folder, 7, lambda data: relabelled(data, 0)))
    assert [problem.code for problem in checks.check(folder).problems] == ["per_class"]


def test_two_records_that_changed_places_are_found(folder):
    records = [framing.frame(data) for _, data in framing.walk(content(folder))]
    (folder / SHARD).write_bytes(b"".join([records[1], records[0], *records[2:]]))
    assert [problem.code for problem in checks.check(folder).problems] == ["shard_digest"]


def test_a_record_that_stands_twice_is_found(folder):
    whole = content(folder)
    rewrite(folder, whole + whole[offset(folder, 19) :])
    assert "shard_examples" in [problem.code for problem in checks.check(folder).problems]


def test_a_split_that_the_manifest_lacks_is_found(folder):
    value = files.read_json(folder / manifest.FILE)
    del value["splits"]["test"]
    files.write_json(folder / manifest.FILE, value)
    problems = checks.check(folder).problems
    assert [problem.code for problem in problems] == ["shard_unexpected", "split_examples"]


def test_missing_labels_are_found(folder):
    (folder / "labels.txt").unlink()
    assert [problem.message for problem in checks.check(folder).problems] == [
        "expected the 2 classes of the manifest, it is missing"
    ]


def test_only_the_splits_that_are_asked_for_are_read(folder):
    HARM["data_crc"](folder)
    assert checks.check(folder, ["test"]).problems == []


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


def test_a_long_list_of_problems_is_told_in_part():
    problems = [checks.Problem(code="schema", file="a", record=n, offset=n, message="m") for n in range(25)]
    assert checks.describe("records", problems).splitlines()[21] == "  ... and 5 more"


def test_a_problem_in_the_report_has_the_five_keys():
    problem = checks.Problem(code="schema", file="a", message="m")
    assert checks.as_json(problem) == {
        "code": "schema",
        "file": "a",
        "record": None,
        "offset": None,
        "message": "m",
    }
