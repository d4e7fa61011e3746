"""What the last two versions of the data were like."""

import pytest
from perennial.validation.baseline import Version

from perennial import files
from perennial.errors import DataError
from perennial.validation import baseline


def version(name):
    return Version(manifest=name, per_class={"cat": 3, "dog": 4}, brightness=[7] + [0] * 31)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "baseline.json"


def names(file):
    return [each.manifest for each in baseline.load(file).versions]


def noted(file, *versions, dataset="pets"):
    """What the file says after these versions were validated."""
    for name in versions:
        known = baseline.load(file)
        before = known.before(dataset, name) if known else None
        baseline.write(file, dataset, version(name), before)
    return names(file)


def test_without_a_file_there_is_no_baseline(file):
    assert baseline.load(file) is None


def test_a_version_comes_back_as_it_was(file):
    baseline.write(file, "pets", version("a"), None)
    assert baseline.load(file).versions == [version("a")]


@pytest.mark.parametrize(
    ("versions", "kept"),
    [("a", "a"), ("ab", "ab"), ("abb", "ab"), ("abc", "bc"), ("aba", "ba"), ("abcc", "bc")],
)
def test_the_last_two_versions_are_kept(file, versions, kept):
    assert noted(file, *versions) == list(kept)


@pytest.mark.parametrize(
    ("versions", "name", "before"), [("a", "b", "a"), ("ab", "b", "a"), ("ab", "c", "b"), ("ab", "a", "b")]
)
def test_a_version_is_compared_with_the_last_other_one(file, versions, name, before):
    noted(file, *versions)
    assert baseline.load(file).before("pets", name) == version(before)


def test_a_version_is_not_compared_with_itself(file):
    noted(file, "a")
    assert baseline.load(file).before("pets", "a") is None


def test_a_version_is_not_compared_with_another_data_set(file):
    noted(file, "a")
    assert baseline.load(file).before("plants", "b") is None


def test_the_file_of_another_data_set_is_begun_anew(file):
    noted(file, "a", "b")
    assert noted(file, "c", dataset="plants") == ["c"]


def test_a_file_that_says_it_already_is_left_alone(file):
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
def test_a_damaged_file_is_told_with_what_brings_it_back(file, content):
    file.write_bytes(content)
    with pytest.raises(
        DataError, match=r"baseline\.json is damaged; `git checkout .*baseline\.json` brings it back"
    ):
        baseline.load(file)


def test_a_folder_in_place_of_the_file_is_a_data_error(file):
    file.mkdir()
    with pytest.raises(DataError):
        baseline.load(file)
