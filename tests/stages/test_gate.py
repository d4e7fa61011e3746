"""The gate: which model is promoted, and on what grounds."""

import pytest

from perennial import files
from perennial.errors import DataError
from perennial.stages.gate import gate

METRICS = {"accuracy": 0.98, "loss": 0.06, "examples": 359, "data": "d", "model": "m", "recall_at_5": 1.0}


@pytest.fixture
def decided(load):
    """The decision on a model of some accuracy."""

    def decide(accuracy, least=0.97):
        config = load(**{"gate.min_accuracy": least})
        files.write_json(config.paths.metrics, METRICS | {"accuracy": accuracy})
        gate(config)
        return files.read_json(config.paths.decision)

    return decide


@pytest.mark.parametrize(
    ("accuracy", "least", "promote"),
    [(0.98, 0.97, True), (0.97, 0.97, True), (0.9699, 0.97, False), (0.0, 0, True), (1.0, 1, True)],
)
def test_a_model_is_promoted_when_it_reaches_the_least_accuracy(decided, accuracy, least, promote):
    assert decided(accuracy, least)["promote"] is promote


@pytest.mark.parametrize(
    ("accuracy", "reason"),
    [
        (0.98, "test accuracy 0.98 reaches gate.min_accuracy 0.97"),
        (0.5, "test accuracy 0.5 is below gate.min_accuracy 0.97"),
    ],
)
def test_the_decision_says_why(decided, accuracy, reason):
    assert decided(accuracy)["reasons"] == [reason]


def test_a_reason_never_contradicts_its_numbers(decided):
    assert decided(0.96999)["reasons"] != ["test accuracy 0.9700 is below gate.min_accuracy 0.9700"]


def test_the_decision_names_the_candidate(decided):
    assert decided(0.98)["candidate"] == {
        "accuracy": 0.98,
        "loss": 0.06,
        "examples": 359,
        "data": "d",
        "model": "m",
    }


def test_the_first_model_has_no_champion(decided):
    assert decided(0.98)["champion"] is None


def test_a_rejection_is_a_result_and_no_error(decided):
    assert decided(0.0)["promote"] is False


def test_missing_metrics_are_told_with_what_makes_them(load):
    with pytest.raises(DataError, match=r"metrics\.json does not exist; `dvc repro evaluate` makes it"):
        gate(load())
