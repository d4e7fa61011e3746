"""Two runs compared."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from reports.runs.conftest import Record
from support.histories import BAD, GOOD, TEST, Hand, hand
from typer.main import get_command

from perennial.base import config as configuration
from perennial.base.config import Config
from perennial.base.dvc import dvc_digests
from perennial.cli import app
from perennial.model.evaluation import comparison, intervals
from perennial.release.registry import run_records
from perennial.reports.runs import run_comparison

__all__ = ["hand"]


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(get_command(app), ["runs", "compare", *arguments], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.stdout


def leave(hand: Hand, run: str, right: list[bool], *, in_git: bool = True) -> None:
    """Leave what a run with these predictions leaves: its files in DVC's cache, its branch and its record."""
    hand.run(right)
    if in_git:
        hand.git.run("branch", f"run/{run}")
    config = configuration.load(Path("params.yaml"))
    run_records.start(config, run)
    hits = [sum(right[0::2]), sum(right[1::2])]  # the labels alternate
    per_class = {
        name: {"examples": TEST // 2, "recall": count / (TEST // 2), "precision": None, "f1": None}
        for name, count in zip(("cat", "dog"), hits, strict=True)
    }
    low, high = intervals.wilson(sum(right), TEST)
    scores = {
        "model": repr(right), "accuracy": sum(right) / TEST, "low": low, "high": high, "loss": 0.5,
        "examples": TEST, "per_class": per_class, "evaluations": [],
        "predictions": dvc_digests.digest(config.paths.predictions),
    }  # fmt: skip
    decision = {"promote": True, "accuracy": scores["accuracy"]}
    run_records.add(config, run, scores=scores, decision=decision, outcome="Completed")


@pytest.fixture
def two(hand: Hand) -> Hand:
    """A history with two runs, of which the second has another learning rate and is wrong more often."""
    leave(hand, "night-1", GOOD)
    hand.params({"train.learning_rate": 3.0, "gate.min_gain": 0.5})
    leave(hand, "night-2", BAD)
    return hand


def test_the_gate_s_comparison_counts_images_and_what_changed_is_what_why_finds(two: Hand) -> None:
    found = json.loads(invoke("night-1", "night-2", "--json"))
    low, high = intervals.gain(0, 3, TEST)
    assert found["paired"] == {
        "examples": TEST, "only_a": 3, "only_b": 0, "gain": -3 / TEST, "gain_low": low, "gain_high": high,
        "p_value": 2 * comparison.mcnemar(3, 0),
    }  # fmt: skip
    why = CliRunner().invoke(get_command(app), ["why", "run/night-1", "run/night-2", "--json"])
    assert found["changed"] == json.loads(why.stdout)["differences"]
    assert [(each["kind"], each["what"]) for each in found["changed"]] == [
        ("parameters", "train.learning_rate"),
        ("parameters", "gate.min_gain"),
    ]


@pytest.mark.parametrize("several", [True, False])
def test_runs_with_several_labels_are_compared_by_exact_match_and_only_with_their_like(
    hand: Hand, several: bool
) -> None:
    hand.several = True
    leave(hand, "night-1", GOOD)
    hand.several = several
    leave(hand, "night-2", BAD)
    found = json.loads(invoke("night-1", "night-2", "--json"))
    if several:
        assert [found["paired"][name] for name in ("only_a", "only_b", "gain")] == [3, 0, -3 / TEST]
    else:
        assert (found["paired"], "the other several" in found["unpaired"]) == (None, True)


def test_the_text_has_scores_changes_and_classes_and_lost_predictions_are_named(two: Hand) -> None:
    text = invoke("night-1", "night-2")
    rows = [line.split() for line in text.splitlines()]
    assert max(map(len, text.splitlines())) <= 80
    assert ["parameters", "train.learning_rate", "0.001", "3.0"] in rows
    assert ["(parameters)", "gate.min_gain"] in [row[:2] for row in rows]
    changes = {row[0]: row[-3:] for row in rows if row and row[0] in {"cat", "dog"}}
    assert changes == {"dog": ["-50.0", "2", "0"], "cat": ["-25.0", "1", "0"]}
    assert list(changes) == ["dog", "cat"]
    assert "B alone is right on 0, A alone on 3" in text
    two.cached("metrics/predictions.npz").unlink()
    found = json.loads(invoke("night-1", "night-2", "--json"))
    assert found["paired"] is None
    assert "the file of predictions of run night-2 is lost" in found["unpaired"]


def test_runs_that_git_does_not_have_are_compared_by_their_records(hand: Hand) -> None:
    leave(hand, "night-1", GOOD, in_git=False)
    hand.params({"train.learning_rate": 3.0})
    leave(hand, "night-2", BAD, in_git=False)
    found = json.loads(invoke("night-1", "night-2", "--json"))
    changed = {(each["kind"], each["what"]): (each["a"], each["b"]) for each in found["changed"]}
    assert changed.pop(("parameters", "train.learning_rate")) == (0.001, 3.0)
    assert {kind for kind, _ in changed} <= {"code", "data"}
    assert found["paired"]["only_a"] == 3


def test_other_test_images_are_not_compared(hand: Hand) -> None:
    leave(hand, "night-1", GOOD)
    hand.labels.append(0)  # the images of the test split get other numbers
    leave(hand, "night-2", GOOD)
    found = json.loads(invoke("night-1", "night-2", "--json"))
    assert (found["paired"], "different test images" in found["unpaired"]) == (None, True)
    assert found["unpaired"] in invoke("night-1", "night-2")


def test_a_record_without_scores_is_compared_by_what_it_has(config: Config, record: Record) -> None:
    old = record("night-0", scores=None)
    found: dict[str, Any] = run_comparison.document(config, old, run_records.find(config, "night-1"), None)
    assert (found["loss"][0], found["paired"]) == (None, None)
    assert "not recorded" in found["unpaired"]
    assert {(each["a"], each["only_a"]) for each in found["classes"]} == {(None, None)}
    assert list(run_comparison.lines(found, 80))
