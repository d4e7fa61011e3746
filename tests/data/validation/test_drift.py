"""The file of the baseline, and distances from it."""

import pytest

from perennial.base.errors import DataError
from perennial.data.validation import drift


@pytest.mark.parametrize(
    ("before", "now", "distance", "where"),
    [
        ({"cat": 50, "dog": 50}, {"cat": 60, "dog": 40}, 0.10, "cat"),
        ({"cat": 500, "dog": 500}, {"cat": 40, "dog": 60}, 0.10, "cat"),
        ({"cat": 1, "dog": 2}, {"dog": 200, "cat": 100}, 0.0, "cat"),
        ({"cat": 10, "dog": 10}, {"cat": 10, "dog": 10, "owl": 5}, 0.20, "owl"),
        ({"cat": 10, "dog": 10, "owl": 5}, {"cat": 10, "dog": 10}, 0.20, "owl"),
        ({"cat": 7}, {"dog": 7}, 1.0, "cat"),
        ({"cat": 0}, {"cat": 3}, 1.0, "cat"),
        ({"cat": 0}, {"cat": 0}, 0.0, "cat"),
    ],
)
def test_labels_drift_by_the_share_that_one_class_won_or_lost(before, now, distance, where):
    assert drift.labels(now, before) == drift.Drift(distance, where)


@pytest.mark.parametrize(
    ("before", "now", "distance", "where"),
    [
        ([5, 5, 0], [5, 5, 0], 0.0, 0),
        ([6, 4, 0], [5, 5, 0], 0.10, 0),
        ([2, 2, 2, 2, 2, 0], [0, 2, 2, 2, 2, 2], 0.20, 0),
        ([10, 0, 0, 0], [0, 0, 0, 10], 1.0, 0),
        ([0, 0, 0], [0, 9, 0], 1.0, 1),
        ([10] * 8 + [0] * 2, [0] * 2 + [10] * 8, 0.25, 1),  # no bin moved by more than 0.125
        ([4, 6] * 4, [6, 4] * 4, 0.05, 0),
    ],
)
def test_brightness_drifts_by_the_share_that_passed_an_edge(before, now, distance, where):
    assert drift.brightness(now, before) == drift.Drift(distance, where)


PETS = drift.Baseline(
    dataset="pets",
    statistics=drift.DataStatistics(manifest="a", per_class={"cat": 3, "dog": 4}, brightness=[7] + [0] * 31),
)


def test_without_a_file_there_is_no_baseline(tmp_path):
    assert drift.load_baseline(tmp_path / "baseline.json") == drift.NO_BASELINE


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


def test_a_report_gives_the_statistics_of_its_training_examples():
    train = {"per_class": [3, 4], "brightness": [7] + [0] * 31}
    found = {"dataset": "pets", "manifest": "a", "classes": ["cat", "dog"], "splits": {"train": train}}
    assert drift.baseline_of({"statistics": found}) == PETS
