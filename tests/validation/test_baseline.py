"""The file of the baseline: what is read, and what is refused."""

import pytest

from perennial.errors import DataError
from perennial.validation import drift
from perennial.validation.drift import NO_BASELINE, Baseline, DataStatistics

PETS = Baseline(
    dataset="pets",
    statistics=DataStatistics(manifest="a", per_class={"cat": 3, "dog": 4}, brightness=[7] + [0] * 31),
)


def test_without_a_file_there_is_no_baseline(tmp_path):
    assert drift.load_baseline(tmp_path / "baseline.json") == NO_BASELINE


@pytest.mark.parametrize(
    ("dataset", "manifest", "before"),
    [("pets", "b", PETS.statistics), ("pets", "a", None), ("plants", "b", None)],
)
def test_a_version_is_compared_with_another_one_of_the_same_data_set(dataset, manifest, before):
    assert PETS.before(dataset, manifest) == before


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"dataset": "pets", "statistics": null}', b"\xff\xfe", b"<<<<<<< HEAD\n{}"],
)
def test_a_damaged_file_is_reported_with_its_remedy(tmp_path, content):
    file = tmp_path / "baseline.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"baseline\.json is damaged.*`perennial pin baseline` replaces it"):
        drift.load_baseline(file)


def test_a_folder_in_place_of_the_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError):
        drift.load_baseline(tmp_path)


def test_a_report_gives_the_statistics_of_its_training_examples():
    train = {"per_class": [3, 4], "brightness": [7] + [0] * 31}
    found = {"dataset": "pets", "manifest": "a", "classes": ["cat", "dog"], "splits": {"train": train}}
    assert drift.baseline_of({"statistics": found}) == PETS
