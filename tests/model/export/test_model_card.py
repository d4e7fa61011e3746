"""The model card: its facts, and Markdown that shows every text of a person literally."""

import html
from typing import Any

import pytest

from perennial.base.config import Config
from perennial.base.config.data import DatasetConfig
from perennial.data.records.manifest import Manifest, SplitManifest
from perennial.model.evaluation.results import Metrics, TrainingRecord
from perennial.model.export import model_card

CLASSES = ["cat|dog", "bird"]
SCORES = {"examples": 3, "precision": None, "recall": 0.5, "f1": None}
INTERVALS = {name: {"low": 0.25, "high": 0.875} for name in ("accuracy", "loss", "recall_at_5")}


@pytest.fixture
def card(build, describe, load):
    """The card of a small model, with some parameters changed."""

    def make(
        intervals: dict[str, Any] = INTERVALS, classes: list[str] = CLASSES, **changes: object
    ) -> dict[str, Any]:
        chosen: Config = load(**changes)
        parts = {
            split: SplitManifest(examples=4, per_class=[2, 2], shards=[])
            for split in ("train", "test", "validation")
        }
        metrics = {
            "accuracy": 0.75, "loss": 0.5, "recall_at_5": 1.0, "examples": 4, "confidence_level": 0.95,
            "per_class": dict.fromkeys(classes, SCORES), "calibration": {"ece": 0.125, "bins": 10},
            "intervals": intervals, "data": "scored", "model": "m",
        }  # fmt: skip
        description = describe(build("mnist_cnn", (8, 8, 1), classes=2), classes=2)
        return model_card.model_card(
            description.model_copy(update={"classes": classes, "mirror": chosen.export.mirror}),
            Manifest(dataset="pets", classes=classes, source={}, splits=parts),
            Metrics.model_validate(metrics),
            TrainingRecord(step=9, epoch=1, kept=9, evaluations=[], stopped_by="threshold", weights_sha256="m"),
            train=chosen.train,
            export=chosen.export,
            dataset=DatasetConfig(),
        )

    return make


def test_statements_of_a_person_are_shown_or_their_parameters_named(card) -> None:
    missing = model_card.markdown(card(), [])
    made = card(**{"export.card.licence": "Apache-2.0", "export.card.intended_use": "Sorting my pets."})
    text = model_card.markdown(made, [])
    for key, label, stated in (
        ("licence", "Licence", "Apache-2.0"),
        ("intended_use", "Intended use", "Sorting my pets."),
    ):
        assert f"`export.card.{key}`" in missing
        assert made[key] == stated
        assert f"- {label}: {stated}\n" in text


def test_a_network_that_mirrors_says_so(card) -> None:
    sentence = "averages the logits of each image and of its mirror image"
    assert sentence not in model_card.markdown(card(), [])
    assert sentence in model_card.markdown(card(**{"export.mirror": True}), [])


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<!--",
    "a & b &lt;",
    "[text](javascript:alert(1))",
    "![x](http://example.com/x.png)",
    "`code` and `` ` ``",
    "**bold** _it_ ~~gone~~ $x$",
    "a\\|b",
    "two\nlines\r\n# Heading\u2028third",
)


@pytest.mark.fast_rows("<!--", "[text](javascript:alert(1))", "a\\\\|b")
@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_of_a_person_is_escaped(card, text: str) -> None:
    changes = {"export.card.licence": text, "export.card.intended_use": text, "train.trainable": [text]}
    made = card(classes=[text, "bird"], **changes)
    shown = model_card.markdown(made, [("onnx", "assets.extra/model.onnx", "uint8 `image`", 5)])
    assert len(shown.splitlines()) == len(
        model_card.markdown(card(), [("onnx", "f", "uint8 `image`", 5)]).splitlines()
    )
    assert "<" not in shown
    assert made["classes"][0] == made["licence"] == text  # the JSON is data
    (row,) = (line for line in shown.splitlines() if line.endswith("| 3 | - | 0.5000 |") and "bird" not in line)
    visible = html.unescape(remove_backslashes(row.removeprefix("| ").removesuffix(" | 3 | - | 0.5000 |")))
    assert visible.split() == text.split()


def remove_backslashes(markdown: str) -> str:
    """What a renderer shows; fails at a character with a meaning."""
    shown, characters = "", iter(markdown)
    for character in characters:
        assert character not in "`*[]|~$"
        shown += next(characters) if character == "\\" else character
    return shown


@pytest.mark.parametrize("name", ["hot_dog", "日本", "Rock'n'roll \"7\"", "a-b.c: d (e)"])
def test_ordinary_names_are_not_changed(name: str) -> None:
    assert model_card.escape(name) == name


def test_scores_have_intervals_if_there_are_any(card) -> None:
    assert "| accuracy | 0.7500 | 0.2500 to 0.8750 |\n" in model_card.markdown(card(), [])
    assert "| accuracy | 0.7500 |\n" in model_card.markdown(card({}), [])


def test_tables_are_complete(card) -> None:
    lines = model_card.markdown(card(), [("onnx", "assets.extra/model.onnx", "uint8 `image`", 5)]).splitlines()
    assert "| cat\\|dog | 3 | - | 0.5000 |" in lines
    assert "| onnx | `assets.extra/model.onnx` | uint8 `image` | 5 |" in lines
    for number, line in enumerate(lines):
        if line.startswith("| ---"):
            rows = [row.replace("\\|", "") for row in lines[number - 1 :]]
            end = next((index for index, row in enumerate(rows) if not row.startswith("|")), len(rows))
            assert {row.count("|") for row in rows[:end]} == {line.count("|")}
            assert end > 2


def test_the_card_holds_the_parameters_of_the_training(card) -> None:
    made = card(**{"train.optimizer": "momentum", "train.teacher": "champion"})
    assert made["training"]["parameters"]["teacher"] is None  # there was no champion yet
    options = {"momentum": 0.9, "nesterov": False, "accumulate": "gradients"}
    assert made["training"]["parameters"]["optimizer_options"] == options
    text = model_card.markdown(made, [])
    assert "9 steps; ended by: threshold." in text
    assert "| `train.optimizer_options.momentum` | `0.9` |\n" in text
    assert "adagrad" not in text
