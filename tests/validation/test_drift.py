import pytest

from perennial import files
from perennial.errors import DataError
from perennial.validation import drift
from perennial.validation.drift import DataStatistics


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


def test_histograms_with_other_bins_are_refused():
    with pytest.raises(ValueError, match="zip"):
        drift.brightness([1, 2], [1, 2, 3])


def version(name):
    return DataStatistics(manifest=name, per_class={"cat": 3, "dog": 4}, brightness=[7] + [0] * 31)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "baseline.json"


def names(file):
    return [each.manifest for each in drift.load(file).versions]


def noted(file, *versions, dataset="pets"):
    """What the file says after these versions were validated."""
    for name in versions:
        known = drift.load(file)
        before = known.before(dataset, name) if known else None
        drift.write(file, dataset, version(name), before)
    return names(file)


@pytest.mark.parametrize(
    ("versions", "kept"),
    [("a", "a"), ("ab", "ab"), ("abb", "ab"), ("abc", "bc"), ("aba", "ba"), ("abcc", "bc")],
)
def test_the_last_two_versions_are_kept(file, versions, kept):
    assert drift.load(file) is None
    assert noted(file, *versions) == list(kept)


@pytest.mark.parametrize(
    ("versions", "dataset", "name", "before"),
    [
        ("a", "pets", "b", "a"),
        ("ab", "pets", "b", "a"),
        ("ab", "pets", "c", "b"),
        ("ab", "pets", "a", "b"),
        ("a", "pets", "a", None),
        ("a", "plants", "b", None),
    ],
)
def test_a_version_is_compared_with_the_last_other_one_of_its_data_set(file, versions, dataset, name, before):
    noted(file, *versions)
    assert drift.load(file).before(dataset, name) == (before and version(before))


def test_another_data_set_starts_a_new_file(file):
    noted(file, "a", "b")
    assert noted(file, "c", dataset="plants") == ["c"]


def test_an_unchanged_file_is_not_rewritten(file):
    noted(file, "a", "b")
    before = file.stat().st_mtime_ns
    noted(file, "b", "b")
    assert file.stat().st_mtime_ns == before


def test_the_file_has_sorted_keys_so_that_git_shows_what_changed(file):
    noted(file, "a")
    assert file.read_bytes() == files.json_bytes(files.read_json(file))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"dataset": "pets", "versions": [{}]}', b"\xff\xfe", b"<<<<<<< HEAD\n{}"],
)
def test_a_damaged_file_is_reported_with_its_remedy(file, content):
    file.write_bytes(content)
    with pytest.raises(
        DataError, match=r"baseline\.json is damaged; `git checkout .*baseline\.json` restores it"
    ):
        drift.load(file)


def test_a_folder_in_place_of_the_file_is_a_data_error(file):
    file.mkdir()
    with pytest.raises(DataError):
        drift.load(file)
