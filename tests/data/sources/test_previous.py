"""The pin of the previous version of the data: which version it is, from git and dvc.lock."""

import hashlib
from pathlib import Path

import pytest
from support.git import git

from perennial.base import files
from perennial.data.sources import previous
from perennial.data.validation import drift
from perennial.data.validation.drift import NO_BASELINE, Baseline, DataStatistics

LOCK = "stages:\n  convert:\n    outs:\n    - path: data/records\n      md5: {records}\n{validate}"
VALIDATE = "  validate:\n    outs:\n    - path: data/validation.json\n      md5: {md5}\n"


def statistics(name):
    return DataStatistics(manifest=name, per_class={"cat": 3, "dog": 4}, brightness=[7] + [0] * 31)


def pinned(name):
    return Baseline(dataset="pets", statistics=statistics(name))


@pytest.fixture
def paths(load, monkeypatch, tmp_path, forked_dvc):
    """Paths in a repository without commits."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return load().paths


def ran(name):
    """What a run with this version of the data leaves: its report, and dvc.lock."""
    train = {"per_class": [3, 4], "brightness": statistics(name).brightness}
    found = {"dataset": "pets", "manifest": name, "classes": ["cat", "dog"], "splits": {"train": train}}
    content = files.json_bytes({"statistics": found})
    files.write_bytes(Path("data/validation.json"), content)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    Path("dvc.lock").write_text(LOCK.format(records=name, validate=VALIDATE.format(md5=md5)))


def converted(name):
    """What `convert` leaves before `validate` runs: the report is the last run's."""
    Path("dvc.lock").write_text(LOCK.format(records=name, validate=""))


def night(paths, name):
    """A run with a version of the data, and its commit; the statistics that it was compared with."""
    if not Path(".git").exists():
        git("init", "-q", "-b", "main")
    converted(name)
    found = previous.pin(paths)
    ran(name)
    git("add", "-f", "dvc.lock", str(paths.baseline))
    git("commit", "-q", "--allow-empty", "-m", name)
    return found


@pytest.mark.parametrize(
    ("versions", "previous"),
    [
        ("a", NO_BASELINE),
        ("aa", NO_BASELINE),
        ("ab", pinned("a")),
        ("abb", pinned("a")),
        ("abbb", pinned("a")),
        ("aba", pinned("b")),
    ],
)
def test_a_version_is_compared_with_the_last_other_one_that_was_committed(paths, versions, previous):
    assert [night(paths, name) for name in versions][-1] == previous


def test_until_a_version_is_committed_the_next_one_is_not_compared_with_it(paths):
    night(paths, "a")
    converted("b")
    previous.pin(paths)
    ran("b")
    ran("a")  # as `dvc checkout` restores it from the cache
    converted("c")
    assert previous.pin(paths) == pinned("a")


def test_data_that_came_back_before_a_commit_have_their_committed_baseline_again(paths):
    night(paths, "a")
    night(paths, "b")
    converted("c")
    assert previous.pin(paths) == pinned("b")
    converted("b")
    assert previous.pin(paths) == pinned("a")


def test_a_report_that_is_not_there_any_more_leaves_the_baseline(paths, caplog):
    night(paths, "a")
    night(paths, "b")
    converted("c")
    paths.validation.unlink()
    assert previous.pin(paths) == pinned("a")
    assert "is not available" in caplog.text


@pytest.mark.parametrize(
    "lock", [None, "", "{", "stages: []", "<<<<<<< HEAD", "stages: {convert: {outs: [1]}}"]
)
def test_without_a_valid_lock_the_baseline_stays(paths, lock):
    files.write_json(paths.baseline, pinned("a").model_dump())
    if lock is not None:
        Path("dvc.lock").write_text(lock)
    assert previous.pin(paths) == pinned("a")


def test_a_baseline_of_an_earlier_version_is_replaced(paths):
    files.write_json(paths.baseline, {"dataset": "pets", "versions": []})
    assert (previous.pin(paths), drift.load_baseline(paths.baseline)) == (NO_BASELINE, NO_BASELINE)


def test_without_git_the_baseline_stays(paths, monkeypatch):
    files.write_json(paths.baseline, pinned("a").model_dump())
    monkeypatch.setenv("PATH", "")
    assert previous.pin(paths) == pinned("a")
