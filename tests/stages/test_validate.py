"""Validation: the report, the page, the index, the baseline, and what happens when something is wrong."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.raw import TEST_FROM, picture, write_idx
from support.records import datum, offsets_in, write_folder

from perennial import files
from perennial.errors import DataError
from perennial.records import manifest, problems
from perennial.stages.convert import convert
from perennial.stages.validate import validate

SHARD = "mnist_train_00000-of-00001.tfrecord"


@pytest.fixture
def sound(small):
    """Parameters with sound records."""
    convert(small)
    return small


@pytest.fixture
def damaged(sound):
    """Parameters with records of which one bit was flipped after a first validation."""
    validate(sound)
    file = sound.paths.records / SHARD
    content = bytearray(file.read_bytes())
    content[30] ^= 1
    file.write_bytes(content)
    return sound


def report(config):
    return files.read_json(config.paths.validation)


def outputs(config):
    """The bytes of all that validation writes."""
    paths = config.paths
    written = [paths.validation, paths.validation_page, paths.baseline, *sorted(paths.index.iterdir())]
    return {path.name: path.read_bytes() for path in written}


def test_sound_records_get_a_report_that_says_so(sound):
    validate(sound)
    assert (report(sound)["ok"], report(sound)["problems"], report(sound)["problem_counts"]) == (True, [], {})


def test_a_report_counts_the_examples_of_each_split(sound):
    validate(sound)
    assert report(sound)["examples"] == {"train": 30, "validation": 10, "test": 20}


def test_a_report_counts_the_examples_of_each_class(sound):
    validate(sound)
    splits = report(sound)["statistics"]["splits"]
    assert {split: part["per_class"] for split, part in splits.items()} == {
        "train": [3] * 10,
        "validation": [1] * 10,
        "test": [2] * 10,
    }


def test_a_report_says_how_large_the_images_are(sound):
    validate(sound)
    found = report(sound)["statistics"]
    assert [found[name] for name in ("height", "width", "channels")] == [[3, 3], [4, 4], [1, 1]]


def test_a_report_gives_mean_and_deviation_of_all_pixels(sound):
    validate(sound)
    values = np.r_[0:40, TEST_FROM : TEST_FROM + 20]
    found = report(sound)["statistics"]
    assert found["mean"] == pytest.approx(values.mean())
    assert found["channel_std"] == [pytest.approx(values.std())]


def test_a_report_names_the_manifest_and_the_bytes_of_the_records(sound):
    validate(sound)
    found, records = report(sound)["statistics"], sound.paths.records
    size = sum(path.stat().st_size for path in records.glob("*.tfrecord"))
    assert (found["manifest"], found["bytes"]) == (manifest.digest(records), size)


def test_the_page_is_written(sound):
    validate(sound)
    assert "<html" in sound.paths.validation_page.read_text()


def test_the_index_has_a_line_a_record(sound):
    validate(sound)
    assert len(np.load(sound.paths.index / f"{SHARD}.npy")) == 30


def test_the_same_records_give_the_same_bytes(sound):
    validate(sound)
    before = outputs(sound)
    validate(sound)
    assert outputs(sound) == before


@pytest.fixture
def in_parts(monkeypatch):
    """Little is enough for other processes, which get a few records at a time."""
    monkeypatch.setattr("perennial.records.checks.SMALL_BYTES", dict.fromkeys(("all", "sample", "none"), 0))
    monkeypatch.setattr("perennial.records.checks.PART_BYTES", 1000)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_any_number_of_processes_gives_the_same_bytes(load, sound, in_parts, processes):
    validate(sound)
    before = outputs(sound)
    validate(load(**{"compute.processes": processes}))
    assert outputs(sound) == before


@pytest.mark.parametrize("processes", [2, 4])
def test_any_number_of_processes_finds_the_same_damage(load, damaged, in_parts, processes):
    found = []
    for number in (1, processes):
        with pytest.raises(DataError):
            validate(load(**{"compute.processes": number}))
        found.append(damaged.paths.validation.read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("part_bytes", [1, 500, 1 << 20])
def test_the_size_of_the_parts_that_are_looked_at_does_not_matter(sound, monkeypatch, part_bytes):
    validate(sound)
    before = outputs(sound)
    monkeypatch.setattr("perennial.records.checks.PART_BYTES", part_bytes)
    validate(sound)
    assert outputs(sound) == before


@pytest.mark.parametrize("decode", ["sample", "none"])
def test_fewer_images_can_be_decoded(load, sound, decode):
    validate(load(**{"validate.decode": decode}))
    assert report(sound)["examples"] == {"train": 30, "validation": 10, "test": 20}


def test_the_records_are_not_touched(sound):
    before = {path.name: path.read_bytes() for path in sound.paths.records.iterdir()}
    validate(sound)
    assert {path.name: path.read_bytes() for path in sound.paths.records.iterdir()} == before


def test_damaged_records_are_a_data_error_that_names_the_place(damaged):
    with pytest.raises(DataError, match=rf"{SHARD} record 0 at byte 0: .* \[data_crc\]"):
        validate(damaged)


def test_the_error_says_where_all_problems_are(damaged):
    with pytest.raises(DataError, match=f"All are in {damaged.paths.validation}"):
        validate(damaged)


def test_problems_that_are_not_listed_are_counted(sound, monkeypatch):
    monkeypatch.setattr("perennial.records.inspection.LISTED", 4)
    file = sound.paths.records / SHARD
    content = bytearray(file.read_bytes())
    for stop in offsets_in(content)[1:11]:
        content[stop - 1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        validate(sound)
    assert str(caught.value).startswith(f"{sound.paths.records} has 11 problems:")  # with that of the digest
    assert f"5 of them are in {sound.paths.validation} and" in str(caught.value)


def test_a_warning_tells_the_first_and_counts_the_others(load, monkeypatch, caplog):
    monkeypatch.setattr("perennial.validation.judgement.LISTED", 4)
    config = load()
    planted(config, {"train": in_turn([*range(6), *range(6)]), "validation": in_turn([30, 31])})
    validate(config)
    (warning,) = (each.message for each in caplog.records if each.levelname == "WARNING")
    assert warning.endswith(f"[duplicate_in_split] and 5 more, 3 of them in {config.paths.validation}")


def test_damaged_records_get_a_report_that_lists_what_is_wrong(damaged):
    with pytest.raises(DataError):
        validate(damaged)
    found = report(damaged)
    assert (found["ok"], [problem["code"] for problem in found["problems"]]) == (
        False,
        ["data_crc", "shard_digest"],
    )


def test_damaged_records_get_a_page(damaged):
    damaged.paths.validation_page.unlink()
    with pytest.raises(DataError):
        validate(damaged)
    assert "data_crc" in damaged.paths.validation_page.read_text()


def test_a_problem_in_the_report_says_its_place(damaged):
    with pytest.raises(DataError):
        validate(damaged)
    assert report(damaged)["problems"][0] == {
        "code": "data_crc",
        "severity": "error",
        "file": SHARD,
        "record": 0,
        "offset": 0,
        "message": "the checksum of the record's data does not match",
    }


def test_the_old_index_stays_when_something_is_wrong(damaged):
    before = (damaged.paths.index / f"{SHARD}.npy").read_bytes()
    with pytest.raises(DataError):
        validate(damaged)
    assert (damaged.paths.index / f"{SHARD}.npy").read_bytes() == before


def test_the_old_baseline_stays_when_something_is_wrong(damaged):
    before = damaged.paths.baseline.read_bytes()
    with pytest.raises(DataError):
        validate(damaged)
    assert damaged.paths.baseline.read_bytes() == before


def test_every_code_in_a_report_is_known(damaged):
    with pytest.raises(DataError):
        validate(damaged)
    known = problems.CODES | problems.JUDGED_CODES
    assert {problem["code"] for problem in report(damaged)["problems"]} <= known.keys()


def test_records_of_which_none_can_be_read_still_get_a_report(sound):
    for file in sound.paths.records.glob("*.tfrecord"):
        file.write_bytes(b"")
    with pytest.raises(DataError):
        validate(sound)
    assert report(sound)["statistics"]["mean"] is None


def test_missing_records_are_told_with_what_makes_them(small):
    with pytest.raises(DataError, match="`dvc repro convert` makes it"):
        validate(small)


def test_records_in_slims_layout_are_validated(load, small):
    config = load(**{"dataset.layout": "slim"})
    convert(config)
    validate(config)
    assert report(config)["examples"] == {"train": 40, "test": 20}


def pictures_of(numbers, label=0):
    return [datum(picture(number, 32), label) for number in numbers]


def planted(config, splits, classes=("cat", "dog")):
    """Writes a record folder of given data in place of a conversion."""
    shutil.rmtree(config.paths.records, ignore_errors=True)
    write_folder(config.paths.records, {split: [data] for split, data in splits.items()}, classes)


def version(cats, dogs, seed=0, shade=0):
    """Pictures to train on, of cats and dogs, all brighter by some shade; and others to test."""
    labels = [0] * cats + [1] * dogs
    train = [
        datum((picture(seed + number, 32) // 2 + shade).astype(np.uint8), label)
        for number, label in enumerate(labels)
    ]
    return {
        "train": train,
        "validation": pictures_of([9000], 0) + pictures_of([9001], 1),
        "test": pictures_of([9002], 0) + pictures_of([9003], 1),
    }


def codes(config):
    """The code of each problem with its severity, and whether the stage failed."""
    try:
        validate(config)
        failed = False
    except DataError:
        failed = True
    return [(problem["code"], problem["severity"]) for problem in report(config)["problems"]], failed


def test_the_first_version_has_nothing_to_be_compared_with(load):
    config = load()
    planted(config, version(10, 10))
    validate(config)
    assert (report(config)["statistics"]["drift"], len(files.read_json(config.paths.baseline)["versions"])) == (
        None,
        1,
    )


def test_labels_that_shifted_by_ten_points_are_flagged(load):
    config = load()
    planted(config, version(10, 10))
    validate(config)
    planted(config, version(12, 8))
    assert codes(config) == ([("drift_labels", "warn")], False)


def test_labels_that_shifted_by_less_than_is_allowed_are_not_flagged(load):
    config = load(**{"validate.max_label_drift": 0.1})
    planted(config, version(10, 10))
    validate(config)
    planted(config, version(12, 8))
    assert codes(config) == ([], False)


def test_brighter_images_are_flagged(load):
    config = load()
    planted(config, version(10, 10))
    validate(config)
    planted(config, version(10, 10, shade=40))
    assert codes(config) == ([("drift_brightness", "warn")], False)


def test_a_version_is_compared_with_the_one_before_however_often_it_is_validated(load):
    config = load()
    planted(config, version(10, 10))
    validate(config)
    planted(config, version(12, 8, shade=40))
    validate(config)
    before = outputs(config)
    validate(config)
    assert outputs(config) == before


def test_a_version_is_compared_with_the_same_one_on_another_machine(load):
    config = load()
    planted(config, version(10, 10))
    validate(config)
    planted(config, version(12, 8))
    validate(config)
    before, kept = config.paths.validation.read_bytes(), config.paths.baseline.read_bytes()
    for path in (config.paths.validation, config.paths.baseline):
        path.unlink()
    config.paths.baseline.write_bytes(kept)
    validate(config)
    assert config.paths.validation.read_bytes() == before


def test_a_third_version_is_compared_with_the_second(load):
    config = load()
    for cats in (10, 14, 14):
        planted(config, version(cats, 24 - cats, seed=10 * cats))
        validate(config)
    planted(config, version(14, 10, seed=7))
    assert codes(config) == ([], False)


def test_another_data_set_is_not_compared_with_the_one_before(load):
    config = load()
    planted(config, version(10, 10))
    validate(config)
    planted(config, version(14, 6))
    other = files.read_json(config.paths.records / manifest.FILE) | {"dataset": "other pets"}
    files.write_json(config.paths.records / manifest.FILE, other)
    assert codes(config) == ([], False)


def test_drift_that_is_an_error_leaves_the_baseline(load):
    config = load(**{"validate.severity": severities(drift_labels="error")})
    planted(config, version(10, 10))
    validate(config)
    before = config.paths.baseline.read_bytes()
    planted(config, version(12, 8))
    assert (codes(config), config.paths.baseline.read_bytes() == before) == (
        ([("drift_labels", "error")], True),
        True,
    )


def severities(**changes):
    known = dict.fromkeys(problems.JUDGED_CODES, "warn")
    return known | changes


# What gives a problem of each code that is a matter of judgement, and the version that was there before.
PLANTED = {
    "duplicate_across_splits": (None, {"train": [*range(6), 20], "validation": [30, 31], "test": [40, 0]}),
    "duplicate_in_split": (None, {"train": [*range(6), 0], "validation": [30, 31], "test": [40, 41]}),
    "near_duplicate": (None, None),
    "class_missing": (None, {"train": range(6), "validation": [30], "test": [40, 41]}),
    "class_imbalance": (None, None),
    "drift_labels": (version(10, 10), version(12, 8)),
    "drift_brightness": (version(10, 10), version(10, 10, shade=40)),
}


def in_turn(numbers):
    return [datum(picture(number, 64), place % 2) for place, number in enumerate(numbers)]


def plant(config, code):
    """Leaves records that have just this problem."""
    before, after = PLANTED[code]
    if before is not None:
        planted(config, before)
        validate(config)
        planted(config, after)
    elif code == "near_duplicate":
        pixels = picture(0, 64)
        altered = np.clip(pixels.astype(int) + 1, 0, 255).astype(np.uint8)
        test = [datum(altered, 0), datum(picture(50, 64), 1)]
        planted(config, {"train": in_turn(range(6)), "validation": in_turn([30, 31]), "test": test})
    elif code == "class_imbalance":
        planted(config, version(22, 2))
    else:
        planted(config, {split: in_turn(numbers) for split, numbers in after.items()})


def test_every_code_that_is_a_matter_of_judgement_is_planted():
    assert list(PLANTED) == list(problems.JUDGED_CODES)


@pytest.mark.parametrize("code", PLANTED)
@pytest.mark.parametrize(
    ("severity", "listed", "failed"), [("error", True, True), ("warn", True, False), ("ignore", False, False)]
)
def test_a_matter_of_judgement_does_what_its_severity_says(load, code, severity, listed, failed):
    config = load(**{"validate.severity": severities(**{code: severity})})
    plant(config, code)
    assert codes(config) == ([(code, severity)] if listed else [], failed)


@pytest.mark.parametrize("code", PLANTED)
def test_a_report_is_ok_unless_something_is_an_error(load, code):
    found = []
    for severity in ("warn", "error"):
        config = load(**{"validate.severity": severities(**{code: severity})})
        config.paths.baseline.unlink(missing_ok=True)
        plant(config, code)
        codes(config)
        found.append(report(config)["ok"])
    assert found == [True, False]


def test_raw_images_without_pixels_never_become_records(small):
    write_idx(small.paths.raw / "train-images-idx3-ubyte.gz", np.zeros((40, 0, 4), np.uint8))
    with pytest.raises(DataError, match="no pixels"):
        convert(small)


def test_the_report_is_json_of_the_contracts_form(sound):
    validate(sound)
    text = Path(sound.paths.validation).read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False) + "\n"
