"""The gate: which model is promoted, and the reasons."""

import json

import pytest

from perennial import files
from perennial.errors import DataError
from perennial.stages.gate import gate

METRICS = {"accuracy": 0.98, "loss": 0.06, "examples": 359, "data": "d", "model": "m", "recall_at_5": 1.0}


@pytest.fixture
def decided(load):
    """The decision on a model of some accuracy."""

    def decide(accuracy, minimum=0.97):
        config = load(**{"gate.min_accuracy": minimum})
        files.write_json(config.paths.metrics, METRICS | {"accuracy": accuracy})
        gate(config)
        return files.read_json(config.paths.decision)

    return decide


@pytest.mark.parametrize(
    ("accuracy", "minimum", "promote"),
    [(0.98, 0.97, True), (0.97, 0.97, True), (0.9699, 0.97, False), (0.0, 0, True), (1.0, 1, True)],
)
def test_a_model_is_promoted_when_it_reaches_the_minimum_accuracy(decided, accuracy, minimum, promote):
    assert decided(accuracy, minimum)["promote"] is promote


@pytest.mark.parametrize("accuracy", [0.98, 0.5])
def test_the_reason_holds_both_numbers(decided, accuracy):
    (reason,) = decided(accuracy)["reasons"]
    assert f"{accuracy} " in reason
    assert reason.endswith("0.97")


def test_a_reason_never_contradicts_its_numbers(decided):
    (reason,) = decided(0.96999)["reasons"]
    assert "0.97 is" not in reason.replace("0.9700", "0.97")


def test_the_decision_names_the_candidate_and_no_champion(decided):
    decision = decided(0.98)
    assert decision["candidate"] == {key: METRICS[key] for key in METRICS.keys() - {"recall_at_5"}}
    assert decision["champion"] is None


WRONG = {
    "empty": ("{}", "accuracy"),
    "no model": (json.dumps({key: METRICS[key] for key in METRICS.keys() - {"model"}}), "model"),
    **{
        f"{key} {value}": (json.dumps(METRICS | {key: value}), key)
        for key, value in (("accuracy", "0.98"), ("accuracy", True), ("accuracy", None), ("accuracy", [1]),
                           ("examples", 3.5), ("data", 1))
    },
    **{
        f"{key} {value}": (json.dumps(METRICS | {key: 0}).replace(f'"{key}": 0', f'"{key}": {value}'), value)
        for key in ("accuracy", "loss") for value in ("NaN", "Infinity", "-Infinity", "1e999")
    },
    "not JSON": ("{", "cannot be read"),
    "a list": ("[]", "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "named"), WRONG.values(), ids=WRONG)
def test_invalid_metrics_are_a_data_error_that_keeps_the_old_decision(load, content, named):
    config = load()
    files.write_bytes(config.paths.metrics, content.encode())
    files.write_bytes(config.paths.decision, b"old")
    with pytest.raises(DataError, match=rf"metrics\.json .*{named}.*dvc repro evaluate"):
        gate(config)
    assert config.paths.decision.read_bytes() == b"old"


def test_missing_metrics_are_a_data_error(load):
    with pytest.raises(DataError, match=r"metrics\.json .*dvc repro evaluate"):
        gate(load())
