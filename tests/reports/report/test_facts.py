"""Facts of a run, reasons for missing parts, and its revision, changed files and parameters."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
from support import finished
from support.checkout import start_repository
from support.git import git

from perennial.base import documents
from perennial.base.dvc import dvc_lock
from perennial.base.project.stage_table import STAGES
from perennial.reports.report.facts import changed_parameters, collect, provenance

LOCK = [dvc_lock.FILE]
RECORDED = {"train": {"train": {"epochs": 30, "keep": "last"}}, "gate": {"dataset.seed": 0}}


def lock(recorded):
    """Write a dvc.lock of all stages with these parameters."""
    finished.lock(Path(), {stage: {} for stage in STAGES} | recorded)


def test_everything_that_a_run_leaves_is_read(config):
    found = collect(config)
    assert found.missing == {}
    assert (found.data.classes, len(found.test.predictions.labels)) == (["cat", "dog", "owl"], 18)
    assert (found.test.matrix.names, found.test.matrix.counts.sum()) == (("cat", "dog", "owl"), 18)
    assert (len(found.training_curve["loss"]), len(found.validation_curve["accuracy"])) == (40, 4)


@pytest.mark.parametrize(
    ("part", "path", "stage"),
    [
        ("validation", "validation", "validate"),
        ("test", "predictions", "evaluate"),
        ("training_curve", "curves/training.csv", "train"),
        ("validation_curve", "curves/validation.csv", "train"),
    ],
)
def test_a_missing_part_is_named_with_the_command_that_makes_it(config, part, path, stage):
    name, *below = path.split("/")
    file = getattr(config.paths, name).joinpath(*below)
    file.unlink()
    found = collect(config)
    assert (getattr(found, part), list(found.missing)) == (None, [part])
    assert f"{file} does not exist" in found.missing[part]
    assert f"dvc repro {stage}" in found.missing[part]


DAMAGED = {
    "empty": (b"", "no lines"),
    "no lines": (b"step,loss,accuracy\n", "no lines"),
    "a short line": (b"step,loss,accuracy\n1\n", "cannot be read"),
    "no text": (b"\xff\xfe", "cannot be read"),
    "no number": (b"step,loss,accuracy\n1,high,1\n", "cannot be read"),
    "no accuracy": (b"step,loss\n1,2\n", "accuracy"),
    "a huge number": (b"step,loss,accuracy\n1,2," + b"3" * 1000, "not finite"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_curve_is_named(config, damage):
    content, word = DAMAGED[damage]
    (config.paths.curves / "validation.csv").write_bytes(content)
    found = collect(config)
    assert found.validation_curve is None
    assert "validation.csv" in found.missing["validation_curve"]
    assert word in found.missing["validation_curve"]


def statistics(config, **values):
    known = documents.read_json(config.paths.validation)["statistics"]
    finished.change(config.paths.validation, statistics={**known, **values})


def content(config, text):
    config.paths.predictions.write_bytes(text)


def scored(config, **values):
    """Predictions of two classes, some facts of them changed."""
    dataclasses.replace(finished.leave(config, ["cat", "dog"]), **values).write(config.paths.predictions)


SPOILT = {
    "unexpected statistics": (
        statistics,
        {"height": ["low", "high"]},
        "validation",
        "validation.json cannot be",
    ),
    "a validation of other data": (statistics, {"manifest": "another"}, "validation", "other data"),
    "an empty file": (content, {"text": b""}, "test", "predictions.npz"),
    "a CSV file": (content, {"text": b"actual\ncat\n"}, "test", "predictions.npz"),
    "invalid labels": (scored, {"labels": np.arange(12)}, "test", "predictions.npz"),
    "of another model": (scored, {"model": "another"}, "test", "another model"),
    "of other data": (scored, {"data": "another"}, "test", "another model or other data"),
}


@pytest.mark.parametrize(("spoil", "values", "part", "said"), SPOILT.values(), ids=SPOILT)
def test_a_part_that_is_damaged_or_of_another_run_is_named_and_not_used(config, spoil, values, part, said):
    spoil(config, **values)
    found = collect(config)
    assert (getattr(found, part), said in found.missing[part]) == (None, True), found.missing


@pytest.mark.parametrize("content", ["{}", "[]", '{"seconds": null}', "{"])
def test_a_time_that_cannot_be_read_is_left_out(config, content):
    (config.paths.work / "timings" / "train.json").write_text(content)
    assert "train" not in collect(config).seconds


@pytest.fixture
def checkout(workspace, monkeypatch):
    """A folder with one commit."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    start_repository(workspace)
    return workspace


@pytest.fixture
def project(checkout, monkeypatch):
    """A project in a folder of a checkout, whose names have spaces and quotes."""
    folder = checkout / 'my "project"'
    folder.mkdir()
    for file in ("dvc.lock", "baseline.json", "a file\n.txt", "gone.txt"):
        (folder / file).write_text("old")
    git("add", ".")
    git("commit", "-qm", "project")
    monkeypatch.chdir(folder)
    return folder


def test_a_clean_checkout_has_a_revision_and_no_changes(checkout):
    Path("report.html").write_text("untracked")
    found = provenance(LOCK)
    assert (found.revision, found.changed, found.lock_changed) == (git("rev-parse", "HEAD"), (), False)


def test_changed_files_are_named(checkout):
    Path("params.yaml").write_text("changed")
    Path("größe.txt").write_text("new")
    git("add", "größe.txt")
    assert provenance(LOCK).changed == ("größe.txt", "params.yaml")


def test_files_that_runs_write_are_not_changes(project):
    for file in ("dvc.lock", "baseline.json"):
        Path(file).write_text("new")
    found = provenance([*LOCK, Path("baseline.json")])
    assert (found.changed, found.lock_changed) == ((), True)
    assert found.lock == hashlib.sha256(b"new").hexdigest()


def test_names_are_relative_to_the_project(project):
    (project / "a file\n.txt").write_text("new")
    (project / "gone.txt").unlink()
    (project.parent / "params.yaml").write_text("changed outside of the project")
    assert provenance(LOCK).changed == ("a file\n.txt", "gone.txt")


def test_a_moved_file_is_listed_by_both_names(project):
    git("mv", "gone.txt", "there.txt")
    assert provenance(LOCK).changed == ("gone.txt", "there.txt")


def test_if_git_fails_changes_are_not_known(checkout):
    Path(".git", "index").write_bytes(b"damaged")
    found = provenance(LOCK)
    assert (found.revision is None, found.changed) == (False, None)


def test_without_a_checkout_there_is_no_revision(workspace, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(workspace.parent))
    found = provenance(LOCK)
    assert (found.revision, found.changed, found.lock) == (None, None, None)


def test_without_git_there_is_no_revision(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance(LOCK).revision is None


@pytest.fixture
def folder(workspace):
    """A folder with parameters and a record of them."""
    (workspace / "params.yaml").write_text("train: {epochs: 30, keep: last}\ndataset: {seed: 0, name: pets}\n")
    lock(RECORDED)
    return workspace


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ("train: {epochs: 30, keep: last}\ndataset: {seed: 0, name: other}", ()),
        ("train: {epochs: 3.0e+01, keep: last}\ndataset: {seed: 0}", ()),
        ("train: {epochs: 31, keep: last}\ndataset: {seed: 1}", ("dataset.seed", "train.epochs")),
        ("train: {epochs: 30, keep: last, new: 1}\ndataset: {seed: 0}", ("train.new",)),
        ("train: {epochs: 30}\ndataset: {seed: 0}", ("train.keep",)),
        ("dataset: {seed: 0}", ("train",)),
    ],
)
def test_parameters_that_stages_read_are_compared_with_dvc_lock(folder, written, changed):
    (folder / "params.yaml").write_text(written)
    assert changed_parameters() == changed


@pytest.mark.parametrize("content", [None, "", "{", "stages: []", "stages: {}", "<<<<<<< HEAD", "\0"])
def test_without_a_valid_lock_nothing_is_known(folder, content):
    (folder / "dvc.lock").unlink() if content is None else (folder / "dvc.lock").write_text(content)
    assert changed_parameters() is None
