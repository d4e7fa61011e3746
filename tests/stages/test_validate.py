"""Validation: the report, the index, and what happens when something is wrong."""

import numpy as np
import pytest

from perennial import files
from perennial.errors import DataError
from perennial.records import checks, manifest
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


def test_sound_records_get_a_report_that_says_so(sound):
    validate(sound)
    assert report(sound) == {
        "ok": True,
        "examples": {"train": 30, "validation": 10, "test": 20},
        "problems": [],
        "statistics": {
            "height": [3, 3],
            "width": [4, 4],
            "channels": [1, 1],
            "mean": (sum(range(40)) + sum(range(20))) / 60,
            "manifest": manifest.digest(sound.paths.records),
        },
    }


def test_the_index_has_a_line_a_record(sound):
    validate(sound)
    assert len(np.load(sound.paths.index / f"{SHARD}.npy")) == 30


def test_the_same_records_give_the_same_report(sound):
    validate(sound)
    before = sound.paths.validation.read_bytes()
    validate(sound)
    assert sound.paths.validation.read_bytes() == before


def test_the_records_are_not_touched(sound):
    before = {path.name: path.read_bytes() for path in sound.paths.records.iterdir()}
    validate(sound)
    assert {path.name: path.read_bytes() for path in sound.paths.records.iterdir()} == before


def test_damaged_records_are_a_data_error_that_names_the_place(damaged):
    with pytest.raises(DataError, match=rf"{SHARD} record 0 at byte 0: .* \[data_crc\]"):
        validate(damaged)


def test_the_error_says_where_all_problems_are(damaged):
    with pytest.raises(DataError, match=f"All problems are in {damaged.paths.validation}"):
        validate(damaged)


def test_damaged_records_get_a_report_that_lists_what_is_wrong(damaged):
    with pytest.raises(DataError):
        validate(damaged)
    found = report(damaged)
    assert (found["ok"], [problem["code"] for problem in found["problems"]]) == (
        False,
        ["data_crc", "shard_digest"],
    )


def test_a_problem_in_the_report_says_its_place(damaged):
    with pytest.raises(DataError):
        validate(damaged)
    assert report(damaged)["problems"][0] == {
        "code": "data_crc",
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


def test_every_code_in_a_report_is_known(damaged):
    with pytest.raises(DataError):
        validate(damaged)
    assert {problem["code"] for problem in report(damaged)["problems"]} <= set(checks.CODES)


def test_records_of_which_none_can_be_read_still_get_a_report(sound):
    for file in sound.paths.records.glob("*.tfrecord"):
        file.write_bytes(b"")
    with pytest.raises(DataError):
        validate(sound)
    assert report(sound)["statistics"]["mean"] is None


def test_missing_records_are_told_with_what_makes_them(small):
    with pytest.raises(DataError, match="`dvc repro convert` makes it"):
        validate(small)
