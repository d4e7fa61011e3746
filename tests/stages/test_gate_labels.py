"""The gate where an image has several labels: which model is promoted, and the reasons."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.model.evaluation import average_precision, comparison, unbiased
from perennial.model.evaluation.comparison import Champion
from perennial.model.evaluation.predictions import Predictions, Slices
from perennial.model.evaluation.results import Decision
from perennial.release.registry import verdict
from perennial.stages.gate import gate

CLASSES = ("cat", "dog", "bird", "fish")
RANDOM = np.random.default_rng(0)
LABELS = (RANDOM.random((400, 4)) < (0.5, 0.3, 0.2, 0.1)).astype(np.int8)
NOISE = RANDOM.standard_normal((3, 400, 4))
SITE = Slices(column="site", values=("north", "south"), of=np.arange(400) % 2)


def model(margins: Any, digest: str = "m", classes: tuple[str, ...] = CLASSES, own: int = 0) -> Predictions:
    """A model by how far apart it holds the images with each label and those without."""
    logits = np.asarray(margins) * (LABELS - 0.5) + NOISE[0] + 0.5 * NOISE[own]
    return Predictions(
        labels=LABELS, probabilities=(1 / (1 + np.exp(-logits))).astype(np.float32), classes=classes,
        split="test", data="d", split_digest="t", model=digest, slices=(SITE,),
        thresholds=np.full(4, 0.5, np.float32),
    )  # fmt: skip


def champion(scored: Predictions, **changes: Any) -> Champion:
    return replace(Champion.of(scored, commit="c" * 40, version="v0.0.3", model_bytes=9), **changes)


OLD = champion(model(2, "old", own=1))
BETTER, WORSE, SAME = model(4), model(1), model(2.2, own=2)
FISH_LOST = model((7, 7, 7, 0))
TASK = {
    "dataset.name": "tfrecord", "dataset.path": "own", "dataset.task": "multilabel", "train.stop_metric": "map",
    "gate.min_accuracy": None,
}  # fmt: skip

TABLE: dict[str, tuple[Predictions, Champion | None, dict[str, Any], set[str]]] = {
    # name: candidate, champion, options, and the rules that fail
    "first run": (BETTER, None, {}, set()),
    "first run, no better than the prior": (model(-1), None, {}, {"min_map"}),
    "first run, below the minimum": (BETTER, None, {"gate.min_map": 0.999}, {"min_map"}),
    "better": (BETTER, OLD, {}, set()),
    "worse": (WORSE, OLD, {}, {"min_gain", "significance", "max_slice_drop", "max_class_drop"}),
    "about as good": (SAME, OLD, {"gate.min_gain": 0.0}, {"significance"}),
    "a tie": (replace(model(2, own=1), probabilities=OLD.probabilities**2), OLD, {"gate.significance": None},
              {"min_gain"}),
    "one class worse": (FISH_LOST, OLD, {"gate.significance": None}, {"max_class_drop"}),
    "one class worse, no limit": (
        FISH_LOST, OLD, {"gate.significance": None, "gate.max_class_drop": None}, set()),
    "the same weights": (model(4, "old"), OLD, {}, {"new_weights"}),
    "a class is missing": (BETTER, champion(model(2, "old", (*CLASSES[:3], "shark"))), {}, {"missing_classes"}),
    "a champion of one label an image": (
        BETTER, replace(OLD, problem="it is multiclass, and these records are multilabel (dataset.task)",
                        probabilities=None, predicted=np.zeros(0, np.int64)), {}, {"comparable"}),
    "not finite": (replace(BETTER, probabilities=np.full((400, 4), np.nan, np.float32)), OLD, {}, {"finite"}),
}  # fmt: skip


@pytest.fixture
def decide(load: Callable[..., Config]) -> Callable[..., Decision]:
    """The decision on a candidate, with a champion or without one, under some options."""

    def decided(candidate: Predictions, old: Champion | None, **options: Any) -> Decision:
        config = load(**TASK, **options)
        candidate.write(config.paths.predictions)
        found = average_precision.per_class(LABELS, candidate.probabilities)
        metrics = {"map_macro": average_precision.macro(found), "loss": 0.1, "examples": 400}
        files.write_json(config.paths.metrics, metrics | {"data": "d", "model": candidate.model})
        files.write_bytes(config.paths.export / "saved_model.pb", bytes(1000))
        if old is None:
            comparison.write_none(config.paths.champion)
        else:
            old.write(config.paths.champion)
        gate(config)
        return documents.read_checked(config.paths.decision, Decision, "")

    return decided


@pytest.mark.parametrize(("candidate", "old", "options", "failed"), TABLE.values(), ids=TABLE.keys())
def test_the_gate_decides_by_mean_average_precision(
    decide: Callable[..., Decision], candidate: Predictions, old: Champion | None, options: dict[str, Any],
    failed: set[str],
) -> None:  # fmt: skip
    found = decide(candidate, old, **options)
    assert {check.name for check in found.checks if not check.passed} == failed, found.reasons
    assert found.promote == (not failed)
    assert len(verdict.sentence(found).split()) <= verdict.WORDS
    assert (found.candidate.accuracy, found.candidate.map) == (None, pytest.approx(found.candidate.map))


def test_the_decision_holds_the_scores_of_both_and_says_the_difference(decide: Callable[..., Decision]) -> None:
    parts = np.where(np.arange(400) < 300, unbiased.NO_PART, unbiased.TRAINED).astype(np.int8)
    found = decide(BETTER, replace(OLD, parts=parts), **{"gate.max_latency_ms": None})
    compared, best = found.comparison or {}, found.champion
    ours, theirs = (
        average_precision.macro(average_precision.per_class(LABELS[:300], each[:300]))
        for each in (BETTER.probabilities, OLD.probabilities)
    )
    assert best is not None
    assert (best.map, best.accuracy, compared["examples"], compared["left_out"]) == (theirs, None, 300, 100)
    assert compared["gain"] == pytest.approx(ours - theirs)
    assert compared["gain_low"] < compared["gain"] < compared["gain_high"]
    ours_right, right = ((each.predicted == LABELS).all(axis=1)[:300] for each in (BETTER, OLD))
    assert compared["negative_flips"] == (right & ~ours_right).sum() / 300 > 0
    assert best.unbiased is not None
    assert best.unbiased.correct == right.sum()
    assert verdict.sentence(found) == (
        f"passed the gate: mAP {found.candidate.map:.3f} is {compared['gain']:.3f} above v0.0.3's"
    )


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        (WORSE, r"rejected: mAP 0\.\d{3} is 0\.\d{3} below the champion's.*"),
        (SAME, r"rejected: mAP 0\.\d{3} is 0\.\d{3} above the champion's, (too little|which may).*"),
        (FISH_LOST, r"rejected: mAP .* above the champion.s, .* may be chance; fish fell from \d+ % to \d+ %"),
    ],
)
def test_a_rejection_is_one_sentence(decide, candidate, said) -> None:
    assert re.fullmatch(said, verdict.sentence(decide(candidate, OLD)))


def test_a_class_that_the_champion_does_not_know_has_no_probability_from_it(decide) -> None:
    old = champion(replace(model(2, "old"), classes=CLASSES[:3], labels=LABELS[:, :3]))
    old = replace(old, predicted=old.predicted[:, :3], probabilities=old.probabilities[:, :3])
    found = decide(BETTER, old)
    assert found.promote
    assert (found.comparison or {})["new_classes"] == ["fish"]
    fish = (found.comparison or {})["classes"][3]
    assert (fish["name"], fish["champion"]) == ("fish", pytest.approx(LABELS[:, 3].mean()))
