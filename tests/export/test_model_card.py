"""What a model card says, and what it says of what nobody stated."""

from typing import Any

import pytest

from perennial.config import Config
from perennial.export import model_card
from perennial.records.manifest import Manifest, SplitManifest

CLASSES = ["cat|dog", "bird"]
SCORES = {"examples": 3, "precision": None, "recall": 0.5}
METRICS = {
    "accuracy": 0.75,
    "loss": 0.5,
    "recall_at_5": 1.0,
    "examples": 4,
    "per_class": dict.fromkeys(CLASSES, SCORES),
    "calibration": {"ece": 0.125},
    "confidence_level": 0.95,
    "data": "scored",
}
INTERVALS = {name: {"low": 0.25, "high": 0.875} for name in ("accuracy", "loss", "recall_at_5")}


@pytest.fixture
def told(build, describe, load):
    """The card of a small model, with some parameters changed."""

    def make(intervals: dict[str, Any], **changes: object) -> dict[str, Any]:
        chosen: Config = load(**changes)
        parts = {
            split: SplitManifest(examples=4, per_class=[2, 2], shards=[])
            for split in ("train", "test", "validation")
        }
        data = Manifest(dataset="pets", classes=CLASSES, source={}, splits=parts)
        description = describe(build("mnist_cnn", (8, 8, 1), classes=2), classes=2)
        return model_card.model_card(
            description.model_copy(update={"classes": CLASSES}),
            data,
            {**METRICS, "intervals": intervals},
            {"step": 9, "stopped_by": "threshold"},
            train=chosen.train,
            export=chosen.export,
        )

    return make


def test_what_nobody_stated_is_said_to_be_not_stated(told) -> None:
    text = model_card.markdown(told(INTERVALS), [])
    assert "- Licence: not stated (`export.card.licence` in params.yaml)\n" in text
    assert "- Intended use: not stated (`export.card.intended_use` in params.yaml)\n" in text


def test_what_a_person_stated_is_said(told) -> None:
    made = told(
        INTERVALS, **{"export.card.licence": "Apache-2.0", "export.card.intended_use": "Sorting my pets."}
    )
    assert (made["licence"], made["intended_use"]) == ("Apache-2.0", "Sorting my pets.")
    text = model_card.markdown(made, [])
    assert "- Licence: Apache-2.0\n" in text
    assert "- Intended use: Sorting my pets.\n" in text


def test_scores_have_their_intervals_where_there_are_any(told) -> None:
    assert "| accuracy | 0.7500 | 0.2500 to 0.8750 |\n" in model_card.markdown(told(INTERVALS), [])
    assert "| accuracy | 0.7500 |\n" in model_card.markdown(told({}), [])


def test_tables_are_whole(told) -> None:
    lines = model_card.markdown(told(INTERVALS), [("onnx", "assets.extra/model.onnx", 5)]).splitlines()
    assert "| cat\\|dog | 3 | - | 0.5000 |" in lines
    assert "| onnx | `assets.extra/model.onnx` | 5 |" in lines
    for number, line in enumerate(lines):
        if line.startswith("| ---"):
            rows = [row.replace("\\|", "") for row in lines[number - 1 :]]
            end = next((place for place, row in enumerate(rows) if not row.startswith("|")), len(rows))
            assert {row.count("|") for row in rows[:end]} == {line.count("|")}
            assert end > 2


def test_the_training_is_told_with_the_parameters_that_it_used(told) -> None:
    made = told(INTERVALS, **{"train.optimizer": "momentum"})
    assert made["training"]["parameters"]["optimizers"] == {"momentum": {"momentum": 0.9, "nesterov": False}}
    text = model_card.markdown(made, [])
    assert "9 updates; ended by: threshold." in text
    assert "| `train.optimizers.momentum.momentum` | `0.9` |\n" in text
    assert "adagrad" not in text
