"""Results of a run, which must exist and be of the same model."""

import pytest
from support import finished

from perennial import files
from perennial.errors import DataError
from perennial.report.results import read_results

NEEDED = {
    "training": ("stopped_by", "epoch", "step", "kept", "evaluations", "weights_sha256"),
    "metrics": ("accuracy", "loss", "data", "model"),
    "decision": ("promote", "reasons", "candidate"),
}


def test_the_results_of_one_model_are_read(config):
    found = read_results(config.paths)
    assert (found.training.weights_sha256, found.decision.candidate.model) == (found.metrics.model,) * 2


@pytest.mark.parametrize("key", ["model", "data"])
def test_a_decision_on_another_model_or_other_data_is_refused(config, key):
    candidate = files.read_json(config.paths.decision)["candidate"]
    finished.change(config.paths.decision, candidate={**candidate, key: "other"})
    with pytest.raises(DataError, match=r"decision\.json .*other.*dvc repro gate"):
        read_results(config.paths)


def test_scores_of_a_model_from_another_training_are_refused(config):
    finished.change(config.paths.training, weights_sha256="other")
    with pytest.raises(DataError, match=r"metrics\.json .*other.*dvc repro evaluate"):
        read_results(config.paths)


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in NEEDED.items() for key in keys])
def test_a_missing_key_is_named_with_its_file(config, name, key):
    file = getattr(config.paths, name)
    written = files.read_json(file)
    del written[key]
    files.write_json(file, written)
    with pytest.raises(DataError, match=rf"{file}: {key}: .*dvc repro -f"):
        read_results(config.paths)


@pytest.mark.parametrize("name", NEEDED)
def test_an_empty_result_is_named_by_its_file(config, name):
    files.write_json(getattr(config.paths, name), {})
    with pytest.raises(DataError, match=rf"{name}\.json: "):
        read_results(config.paths)


@pytest.mark.parametrize("value", [None, "0.9", 1.5, [0.9]])
def test_an_invalid_accuracy_is_refused(config, value):
    finished.change(config.paths.metrics, accuracy=value)
    with pytest.raises(DataError, match=r"metrics\.json: accuracy: "):
        read_results(config.paths)


def test_the_accuracy_of_a_training_is_that_of_the_kept_step(config):
    finished.change(config.paths.training, kept=20)
    assert read_results(config.paths).training.accuracy == 0.8


def test_a_kept_step_without_an_evaluation_is_refused(config):
    finished.change(config.paths.training, kept=21)
    with pytest.raises(DataError, match=r"training\.json: evaluations .*21"):
        read_results(config.paths)


def test_metrics_of_an_older_version_lack_optional_keys(config):
    found = files.read_json(config.paths.metrics)
    files.write_json(
        config.paths.metrics, {name: found[name] for name in ("accuracy", "loss", "data", "model")}
    )
    metrics = read_results(config.paths).metrics
    assert (metrics.per_class, metrics.intervals, metrics.calibration.ece) == ({}, {}, None)
