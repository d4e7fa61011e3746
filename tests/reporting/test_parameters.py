"""Which parameters have changed since a run."""

import pytest
from support import finished
from support.parameters import change_params

from perennial.reporting import parameters

RECORDED = {"train": {"train": {"epochs": 30, "keep": "last"}}, "gate": {"dataset.seed": 0}}


@pytest.fixture
def folder(workspace):
    """A folder with parameters and a record of them."""
    (workspace / "params.yaml").write_text("train: {epochs: 30, keep: last}\ndataset: {seed: 0, name: pets}\n")
    finished.lock(workspace, RECORDED)
    return workspace


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ("train: {epochs: 30, keep: last}\ndataset: {seed: 0, name: other}", ()),
        ("train: {epochs: 31, keep: last}\ndataset: {seed: 1}", ("dataset.seed", "train.epochs")),
        ("train: {epochs: 30, keep: last, new: 1}\ndataset: {seed: 0}", ("train.new",)),
        ("train: {epochs: 30}\ndataset: {seed: 0}", ("train.keep",)),
        ("dataset: {seed: 0}", ("train",)),
    ],
)
def test_keys_that_a_stage_reads_are_compared_with_those_of_the_run(folder, written, changed):
    (folder / "params.yaml").write_text(written)
    assert parameters.changed(folder, ("train", "gate")) == changed


def test_a_stage_that_is_not_asked_about_counts_for_nothing(folder):
    (folder / "params.yaml").write_text("dataset: {seed: 0}")
    assert parameters.changed(folder, ("gate",)) == ()


def test_numbers_are_equal_however_they_are_written(folder):
    (folder / "params.yaml").write_text("train: {rate: 1.0e-07}")
    (folder / "dvc.lock").write_text("stages: {train: {params: {params.yaml: {train: {rate: 1e-07}}}}}")
    assert parameters.changed(folder, ("train",)) == ()


def test_a_section_that_the_run_recorded_whole_is_compared_by_key(workspace):
    finished.lock(workspace, {"gate": {"gate": {"min_accuracy": 0.97}}})
    change_params(workspace / "params.yaml", {"gate.min_accuracy": 0.5})
    assert parameters.changed(workspace, ("gate",)) == ("gate.min_accuracy",)


@pytest.mark.parametrize("content", [None, "", "{", "stages: []", "stages: {}", "<<<<<<< HEAD", "\0"])
def test_without_a_sound_record_nothing_is_known(folder, content):
    (folder / "dvc.lock").unlink() if content is None else (folder / "dvc.lock").write_text(content)
    assert parameters.changed(folder, ("train",)) is None
