"""A training on all images: no validation split, no rule that needs one, and what the results say then."""

import contextlib
import logging
import shutil
import sys

import numpy as np
import pytest
from support import forks, training
from support.training import run
from typer.testing import CliRunner

from perennial.base import documents
from perennial.base.errors import ConfigError, DataError
from perennial.cli import app
from perennial.data.records import manifest
from perennial.model.export import reference
from perennial.model.training.checkpoints import committed
from perennial.reports.report import summary
from perennial.stages.champion import champion
from perennial.stages.evaluate import evaluate
from perennial.stages.export import export
from perennial.stages.gate import gate

VALUES = {"dataset.validation_fraction": 0, "checkpoints.interval_steps": 1}


@pytest.fixture(scope="module")
def refit(tmp_path_factory):
    """A folder with a training of three steps on all images, evaluated and exported."""
    folder = tmp_path_factory.mktemp("refit")
    training.prepare(folder, VALUES)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", forks.with_tensorflow())
        run(VALUES, evaluate, export)
    return folder


@pytest.fixture
def here(refit, tmp_path, monkeypatch):
    """A copy of it, which the test works in."""
    shutil.copytree(refit, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return training.parameters(VALUES)


def test_no_image_is_held_out(here):
    splits = manifest.load(here.paths.records).splits
    assert [splits[split].examples for split in ("train", "validation", "test")] == [1438, 0, 359]
    assert documents.read_json(here.paths.validation)["ok"]


def test_the_last_weights_become_the_model_and_nothing_is_scored(here):
    record = documents.read_json(here.paths.training)
    assert {name: record[name] for name in ("stopped_by", "step", "kept", "evaluations")} == {
        "stopped_by": "steps", "step": 3, "kept": 3, "evaluations": [],
    }  # fmt: skip
    done = training.outcome(here)
    last = done.checkpoint(3)
    assert all(np.array_equal(last[path], values) for path, values in done.weights.items())


def test_the_export_has_no_reference_for_drift_and_says_why(here):
    with pytest.raises(DataError, match="it needs 50 validation images, and there are no"):
        reference.load(here.paths.export)


def test_a_resumed_training_ends_with_the_same_weights(here, caplog):
    caplog.set_level(logging.INFO, "perennial")
    before = training.outcome(here)
    shutil.rmtree(committed(before.folder)[-1])
    shutil.rmtree("models")
    after = run(VALUES)
    assert "resumed from step 2" in caplog.text
    assert "without a validation split: the model has the last weights" in caplog.text
    assert "no_validation" in caplog.text
    assert all(np.array_equal(after.weights[path], values) for path, values in before.weights.items())


def test_the_report_says_so(here):
    champion(here)
    gate(here)
    found = summary.summary(here)
    assert found["validation accuracy"] == "none held out"
    assert "no_validation" in [each.code for each in summary.advised(here)]
    assert CliRunner().invoke(app, ["report"]).exit_code == 0
    assert "holds no image out for validation" in here.paths.report.read_text()


def test_the_check_of_the_parameters_says_so(here):
    assert "holds no image out for validation" in CliRunner().invoke(app, ["config"]).stderr


@pytest.mark.parametrize(("key", "value"), [("stop_threshold", 0.9), ("patience", 3), ("keep", "best")])
def test_rules_that_need_validation_scores_are_refused(here, key, value):
    with pytest.raises(ConfigError, match=rf"train\.{key} must be .* for dataset\.validation_fraction 0, got"):
        training.parameters({**VALUES, f"train.{key}": value})
