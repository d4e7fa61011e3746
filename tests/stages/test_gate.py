"""The gate: which model is promoted, and the reasons."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perennial.base import config, documents, files
from perennial.base.config import Config
from perennial.base.errors import DataError, QualityError
from perennial.model.evaluation import comparison, intervals, results, unbiased
from perennial.model.evaluation.comparison import Champion
from perennial.model.evaluation.predictions import Predictions, Slices
from perennial.model.evaluation.results import CandidateRecord, Decision
from perennial.release.registry import verdict
from perennial.stages.gate import gate

CLASSES = ("cat", "dog", "bird", "fish")
EXAMPLES = 1000
METRICS = {"accuracy": 0.98, "loss": 0.06, "examples": EXAMPLES, "data": "d", "model": "m", "recall_at_5": 1.0}
ANSWERED = {"examples": EXAMPLES, "answered": 500, "wrong": 5, "coverage": 0.5}
ANY = {"gate.min_accuracy": None}
OFF = {"gate.min_gain": 0.0, "gate.significance": None, "gate.max_class_drop": None}


@dataclass(frozen=True)
class Model:
    """A model by what it gets wrong on the 1000 test examples, whose classes take turns."""

    wrong: tuple[range, ...] = (range(20),)
    digest: str = "m"
    classes: tuple[str, ...] = CLASSES
    confidence: float = 0.98  # of every prediction
    split_digest: str = "t"
    export_bytes: int = 1000

    def predicted(self) -> np.ndarray:
        """Index of the predicted class of each example, [1000]."""
        labels = np.arange(EXAMPLES) % len(CLASSES)
        wrong = np.isin(np.arange(EXAMPLES), [number for part in self.wrong for number in part])
        return np.where(wrong, (labels + 1) % len(CLASSES), labels)

    def probabilities(self) -> np.ndarray:
        """Of all classes, [1000, classes]."""
        rest = (1 - self.confidence) / (len(self.classes) - 1)
        p = np.full((EXAMPLES, len(self.classes)), rest, np.float32)
        p[np.arange(EXAMPLES), self.predicted()] = self.confidence
        return p


def sites(north: int) -> Slices:
    """The first examples are from one site, the others from another."""
    south = (np.arange(EXAMPLES) >= north).astype(np.int64)
    return Slices(column="site", values=("north", "south"), of=south)


Decide = Callable[..., dict[str, Any]]


@pytest.fixture
def decide(load: Callable[..., Config]) -> Decide:
    """The decision on a candidate, with a champion or without one, under some options.

    `changes` are those of the predictions, `metrics` further ones, `score` that of the training.
    """

    def decided(
        candidate: Model, champion: Model | Champion | None = None, *, changes: dict[str, Any] | None = None,
        metrics: dict[str, Any] | None = None, score: float | None = None, **options: object,
    ) -> dict[str, Any]:  # fmt: skip
        config = load(**options)
        write_candidate(config, candidate, **(changes or {}))
        if metrics:
            files.write_json(config.paths.metrics, {**documents.read_json(config.paths.metrics), **metrics})
        if score is not None:
            files.write_json(config.paths.training, {
                "stopped_by": "epochs", "epoch": 1, "step": 1, "kept": 1, "weights_sha256": "m",
                "evaluations": [{"step": 1, "accuracy": score}],
            })  # fmt: skip
        write_champion(config, champion)
        gate(config)
        return documents.read_json(config.paths.decision)

    return decided


def write_candidate(config: Config, candidate: Model, **changes: Any) -> None:
    labels = np.arange(EXAMPLES) % len(CLASSES)
    predictions = Predictions(
        labels=labels, probabilities=candidate.probabilities(), classes=candidate.classes, split="test",
        data="d", split_digest=candidate.split_digest, model=candidate.digest,
    )  # fmt: skip
    predictions = replace(predictions, **changes)
    predictions.write(config.paths.predictions)
    accuracy = float((predictions.probabilities.argmax(axis=1) == labels).mean())
    metrics = METRICS | {"accuracy": accuracy, "model": candidate.digest}
    files.write_json(config.paths.metrics, metrics)
    files.write_bytes(config.paths.export / "saved_model.pb", bytes(candidate.export_bytes))


def as_champion(model: Model, **changes: Any) -> Champion:
    labels, p = np.arange(EXAMPLES) % len(CLASSES), model.probabilities()
    return replace(
        Champion(
            commit="c" * 40, version="v0.0.3", model=model.digest, model_bytes=model.export_bytes,
            classes=model.classes, split_digest=model.split_digest, rescored=False, predicted=model.predicted(),
            p=p.max(axis=1), p_true=p[np.arange(EXAMPLES), labels],
        ),
        **changes,
    )  # fmt: skip


def write_champion(config: Config, champion: Model | Champion | None) -> None:
    if champion is None:
        comparison.write_none(config.paths.champion)
    else:
        (as_champion(champion) if isinstance(champion, Model) else champion).write(config.paths.champion)


OLD = Model(wrong=(range(40),), digest="old")  # accuracy 0.96
BETTER = Model(wrong=(range(20),))  # 20 won, none lost
WORSE = Model(wrong=(range(60),))
TIED = Model(wrong=(range(10, 50),))  # 10 won, 10 lost
SLIGHTLY = Model(wrong=(range(4, 40),))  # 4 won: below min_gain
NOISY = Model(wrong=(range(20, 40), range(100, 114)))  # 20 won, 14 lost: not significant
DOG_WORSE = Model(wrong=(range(101, 301, 4),))  # recall of dogs 0.8
DOGS_FORGOTTEN = Model(wrong=(range(1, 57, 4),))  # 14 dogs of 250 wrong, 4 of them lost; 30 others won
DOGS_LOST = Model(wrong=(range(1, 81, 4),))  # 20 dogs of 250 wrong, 10 of them lost; 30 others won
LARGE = Model(export_bytes=2_000_000)
RENAMED = ("cat", "dog", "bird", "shark")
WIDER = (*CLASSES, "frog")
FLIPPED = {"gate.min_accuracy": 0.9, "gate.significance": None, "gate.max_class_drop": None}

TABLE: dict[str, tuple[Model, Model | Champion | None, dict[str, object], dict[str, bool]]] = {
    # name: candidate, champion, options, and checks with their verdicts, all that the decision must hold
    "first run, at the minimum": (Model(wrong=(range(30),)), None, {}, {"min_accuracy": True}),
    "better but inaccurate": (BETTER, OLD, {"gate.min_accuracy": 0.99},
                              {"min_accuracy": False, "min_gain": True}),
    "tie, all rules off": (TIED, OLD, {"gate.min_accuracy": 0.9, **OFF}, {"min_gain": False}),
    "gain too small, none asked for": (SLIGHTLY, OLD, {"gate.min_accuracy": 0.9, **OFF}, {"min_gain": True}),
    "no negative flip": (BETTER, OLD, {"gate.max_negative_flips": 0.0}, {"max_negative_flips": True}),
}  # fmt: skip


CHANCE = "which may be chance (p-value 0.32, above gate.significance 0.05)"


@pytest.mark.parametrize(
    ("wrong", "promoted", "reason"),
    [
        # 1000 examples of four classes in turn: one that always predicts the largest gets 250 right
        (range(800), False, "0.2 is not above the 0.25 of always predicting cat"),
        (range(750), False, "0.25 is not above the 0.25 of always predicting cat"),
        (range(740), True, f"0.26 is above the 0.25 of always predicting cat, {CHANCE}"),
        (range(600), True, "0.4 is above the 0.25 of always predicting cat"),
    ],
)
def test_without_a_limit_a_model_beats_always_predicting_the_largest_class(decide, wrong, promoted, reason):
    found = decide(Model((wrong,)), **{"gate.min_accuracy": None, "gate.significance": 0.05})
    assert (found["promote"], found["reasons"][0]) == (promoted, f"test accuracy {reason}")


@pytest.mark.parametrize("case", TABLE)
def test_each_rule_decides_by_its_numbers(decide: Decide, case: str) -> None:
    candidate, champion, options, expected = TABLE[case]
    decision = decide(candidate, champion, **options)
    verdicts = {check["name"]: check["passed"] for check in decision["checks"]}
    assert {name: verdicts.get(name) for name in expected} == expected
    assert decision["promote"] == all(verdicts.values())
    assert decision["promote"] == all(expected.values()), decision["reasons"]


@pytest.mark.parametrize(("latency_ms", "megabytes"), [(5.0, 2.0), (5.5, 2.0), (5.0, 1.999_999)])
def test_time_and_size_may_reach_their_limits(decide, monkeypatch, latency_ms, megabytes) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr("perennial.base.parallel.child.call", lambda *given: asked.append(given) or latency_ms)
    found = decide(LARGE, **{"gate.max_latency_ms": 5.0, "gate.max_model_mb": megabytes})
    checks = {check["name"]: (check["value"], check["passed"]) for check in found["checks"]}
    assert checks["max_model_mb"] == (2.0, megabytes == 2)
    assert checks["max_latency_ms"] == (latency_ms, latency_ms == 5)
    assert found["candidate"]["latency_ms"] == latency_ms
    ((program, given, log),) = asked
    assert (program, set(given), log.name) == ("perennial.model.inference.latency", {"export"}, "latency.log")


LIMITS = {
    "gate.min_accuracy": 0.9, "gate.min_class_recall": 0.9, "gate.max_calibration_error": 0.05,
    "gate.max_model_mb": 1.5, "gate.min_gain": 0.005, "gate.significance": 0.05, "gate.max_class_drop": 0.01,
    "gate.max_slice_drop": 0.01,
}  # fmt: skip
BAD = replace(WORSE, confidence=0.5, export_bytes=2_000_000)
NEW, KNOWN = "the weights are not those of the champion v0.0.3", "every class of the champion v0.0.3 is known"
DOGS = {"gate.min_accuracy": 0.9, "gate.significance": None}
WON = ["test accuracy 0.98 reaches gate.min_accuracy 0.9", NEW, KNOWN]


def gained(low: float, high: float, won: int, lost: int, more: str, reached: str) -> str:
    counts = f"{won} won and {lost} lost (negative flips: {lost / 1000:g}) of 1000 test examples{more}"
    return f"gain in accuracy over v0.0.3 (95 %: {low} to {high}), {counts}, {reached} gate.min_gain 0.005"


FLIPS = "v0.0.3 got 14 test examples right that are wrong now: 0.014 (95 %: 0.00767 to 0.0234) is "
TOLD: dict[str, tuple[Model, Model | Champion | None, dict[str, object], list[str]]] = {
    "all passes": (BETTER, OLD, LIMITS, [
        WON[0], "lowest recall, of class cat, 0.98 reaches gate.min_class_recall 0.9",
        "calibration error 1.907e-08 is within gate.max_calibration_error 0.05",
        "size of the export in MB 0.001 is within gate.max_model_mb 1.5",
        "at most 0.05 of its answers are wrong (evaluate.max_error) from a confidence of 0.75", NEW, KNOWN,
        gained(0.0109, 0.0291, 20, 0, "", "0.02 reaches"),
        "p-value of the gain 9.537e-07 is within gate.significance 0.05",
        "no class has a lower score than the champion's", "no slice has a lower score than the champion's",
    ]),
    "all fails": (BAD, OLD, {**LIMITS, "gate.min_accuracy": 0.99, "gate.min_class_recall": 0.95}, [
        "test accuracy 0.94 is below gate.min_accuracy 0.99",
        "lowest recall, of class cat, 0.94 is below gate.min_class_recall 0.95",
        "calibration error 0.44 is above gate.max_calibration_error 0.05",
        "size of the export in MB 2 is above gate.max_model_mb 1.5",
        ("at most 0.05 of its answers are wrong (evaluate.max_error) from no confidence: it would answer "
         "nothing"),
        gained(-0.0291, -0.0109, 0, 20, "", "-0.02 is below"),
        "p-value of the gain 1 is above gate.significance 0.05",
        ("largest drop in accuracy, of slice site: north, 0.1 is above gate.max_slice_drop 0.01 and no chance "
         "(0 won and 20 lost of 200; p-value 9.5e-07, at most 0.0083: 0.05 over 6 groups)"),
    ]),
    "nothing to compare with": (BETTER, None, {"gate.min_accuracy": 0.9}, [
        WON[0], "compared with no champion",
    ]),
    "the champion itself": (BETTER, replace(BETTER, digest="m"), {}, [
        "the weights are those of the champion v0.0.3: there is nothing new to promote",
    ]),
    "a champion of other images": (BETTER, as_champion(OLD, problem="it takes 32 x 32 pixels"), {}, [
        "the champion v0.0.3 cannot be compared on this test split: it takes 32 x 32 pixels",
    ]),
    "a class without examples": (Model(classes=WIDER), None, {"gate.min_class_recall": 0.5}, [
        "class frog has no test examples, so gate.min_class_recall 0.5 fails",
    ]),
    "a class that is missing": (BETTER, replace(OLD, classes=RENAMED), {}, [
        "classes of the champion v0.0.3 are missing: shark",
    ]),
    "a class that is new": (replace(BETTER, classes=WIDER), OLD, {**DOGS, "gate.max_class_drop": None}, [
        *WON, gained(0.0109, 0.0291, 20, 0, " (it does not know frog)", "0.02 reaches"),
    ]),
    "a near miss": (Model(wrong=(range(30),)), None, {"gate.min_accuracy": 0.970001}, [
        "test accuracy 0.96999999999999997 is below gate.min_accuracy 0.970001",
    ]),
    "a tie": (TIED, OLD, {**DOGS, "gate.max_class_drop": 0.1}, [
        "a tie with v0.0.3 does not pass: 10 won and 10 lost (negative flips: 0.01) of 1000 test examples",
    ]),
    "flips beyond chance": (NOISY, OLD, FLIPPED | {"gate.max_negative_flips": 0.007}, [
        f"{FLIPS}above gate.max_negative_flips 0.007 and no chance",
    ]),
    "flips by chance": (NOISY, OLD, FLIPPED | {"gate.max_negative_flips": 0.008}, [
        "test accuracy 0.966 reaches gate.min_accuracy 0.9", NEW, KNOWN,
        gained(-0.00574, 0.0177, 20, 14, "", "0.006 reaches"),
        f"{FLIPS}above gate.max_negative_flips 0.008, but may be chance",
    ]),
    "flips within the limit": (NOISY, OLD, FLIPPED | {"gate.max_negative_flips": 0.014}, [
        "test accuracy 0.966 reaches gate.min_accuracy 0.9", NEW, KNOWN,
        gained(-0.00574, 0.0177, 20, 14, "", "0.006 reaches"),
        f"{FLIPS}within gate.max_negative_flips 0.014",
    ]),
    "a drop beyond chance": (DOGS_LOST, OLD, {**DOGS, "gate.max_class_drop": 0.01}, [
        ("largest drop in recall, of class dog, 0.04 is above gate.max_class_drop 0.01 and no chance "
         "(0 won and 10 lost of 250; p-value 0.00098, at most 0.013: 0.05 over 4 groups)"),
    ]),
    "a drop that is allowed": (DOGS_LOST, OLD, {**DOGS, "gate.max_class_drop": 0.04}, [
        *WON, gained(0.00734, 0.0326, 30, 10, "", "0.02 reaches"),
        ("largest drop in recall, of class dog, 0.04 is within gate.max_class_drop 0.04 "
         "(0 won and 10 lost of 250)"),
    ]),
    "a drop by chance": (DOGS_FORGOTTEN, OLD, {**DOGS, "gate.max_class_drop": 0.01}, [
        "test accuracy 0.986 reaches gate.min_accuracy 0.9", NEW, KNOWN,
        gained(0.0143, 0.0376, 30, 4, "", "0.026 reaches"),
        ("largest drop in recall, of class dog, 0.016 is above gate.max_class_drop 0.01, but may be chance "
         "(0 won and 4 lost of 250; p-value 0.062, above 0.013: 0.05 over 4 groups)"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("case", TOLD)
def test_reasons_say_each_rule_with_its_numbers(decide: Decide, case: str) -> None:
    candidate, champion, options, reasons = TOLD[case]
    more: dict[str, Any] = {}
    if case.startswith("all"):
        found = {"max_error": 0.05, "threshold": None if candidate is BAD else 0.75, "error": 0.01}
        more = {"changes": {"slices": (sites(200),)}, "metrics": {"abstention": ANSWERED | found}}
    decision = decide(candidate, champion, **more, **options)
    assert decision["reasons"] == reasons
    assert decision["promote"] == all(each["passed"] for each in decision["checks"])
    if candidate is BAD:
        numbers = [(each["name"], each["value"], each["limit"], each["passed"]) for each in decision["checks"]]
        assert numbers == [
            ("min_accuracy", 0.94, 0.99, False), ("min_class_recall", 0.94, 0.95, False),
            ("max_calibration_error", pytest.approx(0.44), 0.05, False), ("max_model_mb", 2.0, 1.5, False),
            ("max_error", 0.01, 0.05, False), ("new_weights", None, None, True),
            ("missing_classes", 0, 0, True), ("min_gain", -0.02, 0.005, False),
            ("significance", 1.0, 0.05, False), ("max_class_drop", 0.0, 0.01, True),
            ("max_slice_drop", 0.1, 0.01, False),
        ]  # fmt: skip


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("champion", [None, OLD])
def test_a_model_that_is_not_finite_is_never_promoted(decide, value, champion) -> None:
    probabilities = BETTER.probabilities()
    probabilities[7, 2] = value
    changes = {"probabilities": probabilities}
    decision = decide(BETTER, champion, changes=changes, **OFF, **{"gate.min_accuracy": 0.0})
    assert decision["promote"] is False
    assert decision["checks"] == [{"name": "finite", "value": 1, "limit": 0, "passed": False}]


PASSED = "passed the gate: better than v0.0.3 on 20 test images, worse on 0"
BELOW = "rejected: validation accuracy is"


@pytest.mark.parametrize(
    ("ours", "theirs", "why", "sentence"),
    [
        (0.98, 0.975, None, PASSED),
        (0.98, 0.9751, None, f"{BELOW} 0.49 points above the champion's, too little for gate.min_gain"),
        (0.95, 0.976, None, f"{BELOW} 2.6 points below the champion's"),
        (0.95, 0.95, None, "rejected: a tie in validation accuracy"),
        (0.9, None, "it was trained on them", PASSED),
    ],
)
def test_only_a_model_that_gains_on_validation_is_compared_on_test(decide, ours, theirs, why, sentence) -> None:
    champion = as_champion(OLD, validation=theirs, not_validated=why, comparisons=4, promotions=1)
    found = decide(BETTER, champion, score=ours, **{"gate.false_share": 0.1})
    rules, passed = {check["name"]: check for check in found["checks"]}, sentence.startswith("passed")
    assert verdict.sentence(Decision.model_validate(found)) == sentence
    assert rules["validation_gain"]["passed"] == found["promote"] == passed
    assert rules["validation_gain"]["limit"] == 0.005
    assert ("min_gain" in rules) == (found["comparison"] is not None) == ("budget" in found) == passed
    assert results.Decision.model_validate(found).as_json() == found
    said = " ".join(found["reasons"])
    assert ("not compared with v0.0.3 on validation: it was trained on them" in said) == (why is not None)
    if passed:
        assert found["budget"] == {"comparisons": 4, "promotions": 1, "level": 0.2 / 365}
        assert rules["false_share"]["limit"] == 0.2 / 365
        assert "(comparison 5 of 365, 1 passed before)" in said
    else:
        assert said.startswith("gain in validation accuracy over v0.0.3 ")


def test_a_decision_holds_every_number_of_the_comparison(decide: Decide) -> None:
    decision = decide(BETTER, OLD)
    assert not {"budget", "inputs"} & decision.keys()
    assert results.Decision.model_validate(decision).as_json() == decision
    classes = decision["comparison"].pop("classes")
    low, high = intervals.wilson(245, 250)
    assert classes == [
        {"name": name, "examples": 250, "candidate": 0.98, "low": low, "high": high, "champion": 0.96, "won": 5,
         "lost": 0, "p_value": 1.0, "judged": True}
        for name in CLASSES
    ]  # fmt: skip
    assert decision["comparison"] == {
        "examples": 1000, "left_out": 0, "won": 20, "lost": 0, "p_value": pytest.approx(2**-20),
        "negative_flips": 0.0, "negative_flips_low": 0.0,
        "negative_flips_high": pytest.approx(0.00368, abs=1e-5),
        "gain": pytest.approx(0.02),
        "gain_low": pytest.approx(0.0109, abs=1e-4), "gain_high": pytest.approx(0.0291, abs=1e-4),
        "class_drop": 0.0, "dropped_class": None, "drop_p_value": 1.0, "slices": [], "new_classes": [],
        "missing_classes": [],
    }  # fmt: skip
    champion, candidate = decision["champion"], decision["candidate"]
    assert (champion["version"], champion["commit"], champion["model"]) == ("v0.0.3", "c" * 40, "old")
    assert candidate == {
        "accuracy": 0.98, "loss": 0.06, "examples": 1000, "data": "d", "model": "m", "split_digest": "t",
        "model_bytes": 1000, "calibration_error": pytest.approx(0, abs=1e-6),
    }  # fmt: skip
    assert champion["accuracy"] == 0.96
    assert champion["loss"] == pytest.approx(-0.96 * np.log(0.98) - 0.04 * np.log(0.02 / 3), rel=1e-4)
    assert {"calibration_error": pytest.approx(0.02, abs=1e-6), "model_bytes": 1000}.items() <= champion.items()


def test_examples_that_the_champion_was_trained_on_do_not_count(decide: Decide) -> None:
    parts = np.full(EXAMPLES, unbiased.CHOSE, np.int8)
    parts[:200], parts[200:350] = unbiased.TRAINED, unbiased.NO_PART
    candidate = Model(wrong=(range(30), range(300, 310)))  # 30 lost of those that do not count
    old = as_champion(Model(wrong=(range(200, 260),), digest="old"), parts=parts)
    decision = decide(candidate, old, **ANY)
    compared, champion = decision["comparison"], decision["champion"]
    assert (compared["examples"], compared["left_out"], compared["won"], compared["lost"]) == (800, 200, 60, 10)
    assert champion["accuracy"] == (800 - 60) / 800
    assert any("without 200 that v0.0.3 was trained on" in reason for reason in decision["reasons"])
    low, high = intervals.wilson(90, 150)
    assert champion["unbiased"] == {"examples": 150, "correct": 90, "accuracy": 0.6, "low": low, "high": high}


def test_examples_for_audit_decide_nothing_and_score_the_champion(decide: Decide) -> None:
    audit = np.arange(EXAMPLES) < 200
    parts = np.where(audit, unbiased.NO_PART, unbiased.CHOSE).astype(np.int8)
    candidate = Model(wrong=(range(150),))  # only where nobody looks
    old = as_champion(Model(wrong=(range(160, 260),), digest="old"), parts=parts)
    decision = decide(candidate, old, changes={"audit": audit}, **ANY)
    compared = decision["comparison"]
    assert (compared["examples"], compared["won"], compared["lost"]) == (800, 60, 0)
    assert decision["promote"] is True
    found = decision["champion"]["unbiased"]
    assert (found["examples"], found["correct"]) == (200, 160)


def test_a_champion_that_was_trained_on_every_test_example_cannot_be_compared(decide) -> None:
    decision = decide(BETTER, as_champion(OLD, parts=np.full(EXAMPLES, unbiased.TRAINED, np.int8)), **ANY)
    assert (decision["promote"], decision["comparison"]) == (False, None)
    assert decision["champion"].get("unbiased") is None
    assert "it was trained on every example" in decision["reasons"][0]


@pytest.mark.parametrize(
    ("examples", "lost", "passed", "why"),
    [
        (200, 20, False, "0.1 is above gate.max_slice_drop 0.05 and no chance (0 won and 20 lost of 200"),
        (200, 9, True, "0.045 is within gate.max_slice_drop 0.05 (0 won and 9 lost of 200)"),
        (60, 5, True, "but may be chance (0 won and 5 lost of 60; p-value 0.031, above 0.0083"),
        (40, 20, True, "fewer than 50 examples are not judged"),
    ],
)
def test_a_slice_that_lost_more_than_chance_takes_rejects_the_model(
    decide, examples, lost, passed, why
) -> None:
    old, slices = Model(wrong=(range(500, 600),), digest="old"), (sites(examples),)
    options = ANY | {"gate.max_class_drop": 0.1}
    decision = decide(Model(wrong=(range(lost),)), old, changes={"slices": slices}, **options)
    (check,) = [check for check in decision["checks"] if check["name"] == "max_slice_drop"]
    assert (check["passed"], decision["promote"]) == (passed, passed)
    assert any(why in reason and "of slice site: north" in reason for reason in decision["reasons"])
    north = decision["comparison"]["slices"][0]
    assert (north["name"], north["lost"], north["judged"]) == ("site: north", lost, examples >= 50)


def test_the_only_group_that_is_judged_has_the_whole_level(decide: Decide) -> None:
    options = ANY | {"gate.max_class_drop": None, "gate.max_slice_drop": 0.005}
    old, changes = Model(wrong=(range(960, 1000),), digest="old"), {"slices": (sites(960),)}
    checks = decide(Model(wrong=(range(5),)), old, changes=changes, **options)[
        "checks"
    ]  # 5 of 960: p-value 1/32
    assert [check["name"] for check in checks if not check["passed"]] == ["max_slice_drop"]


SQUARE = Model(wrong=(range(1, 1000, 4),))  # no dog is recognized
FIRST = "test accuracy 0.98 reaches gate.min_accuracy 0.97; compared with no champion"
SENTENCES: dict[str, tuple[Model, Model | None, dict[str, object]]] = {
    f"passed the gate: {FIRST}": (BETTER, None, {}),
    "passed the gate: better than v0.0.3 on 20 test images, worse on 0": (BETTER, OLD, {}),
    "rejected: test accuracy 0.94 is below gate.min_accuracy 0.97": (WORSE, None, {}),
    "rejected: worse on 20 test images, better on 0": (WORSE, OLD, {"gate.min_accuracy": 0.9}),
    "rejected: a tie: better on 10 test images, worse on 10": (TIED, OLD, {"gate.min_accuracy": 0.9}),
    "rejected: better on 20 test images, worse on 14, which may be chance": (
        NOISY, OLD, {"gate.min_accuracy": 0.9, "gate.min_gain": 0.0}
    ),
    "rejected: better on 4 test images, worse on 0, too little for gate.min_gain": (
        SLIGHTLY, OLD, {"gate.min_accuracy": 0.9, "gate.min_gain": 0.005}
    ),
    (f"rejected: {FLIPS}above gate.max_negative_flips 0.007 and no chance"): (
        NOISY, OLD, FLIPPED | {"gate.max_negative_flips": 0.007}
    ),
    "rejected: worse on 240 test images, better on 30; dog fell from 96 % to 0 %": (
        SQUARE, OLD, {"gate.min_accuracy": None}
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_decision_is_one_sentence(decide: Decide, sentence: str) -> None:
    candidate, champion, options = SENTENCES[sentence]
    assert verdict.sentence(Decision.model_validate(decide(candidate, champion, **options))) == sentence


def test_a_sentence_has_at_most_25_words() -> None:
    reasons = [f"reason {n} is one of the many that this decision has" for n in range(9)]
    decision = Decision(promote=False, reasons=reasons, candidate=CandidateRecord(data="d", model="m"))
    said = verdict.sentence(decision)
    assert said == f"rejected: {reasons[0]}; the report says more"
    chance = "test accuracy 0.28 is above the 0.2 of always predicting daisy, which may be chance (p-value "
    alone = decision.model_copy(update={"reasons": [chance + "0.34, above gate.significance 0.05)"]})
    assert verdict.sentence(alone).endswith("gate.significance 0.05)")
    long = verdict.sentence(decision.model_copy(update={"reasons": [" ".join(reasons)]}))
    assert (len(long.split()), long[-4:]) == (25, " ...")


def test_a_name_that_steers_a_terminal_is_escaped(decide: Decide) -> None:
    named = replace(DOG_WORSE, classes=("cat", "\x1b[2Jdog", "bird", "fish"))
    decision = decide(named, **{"gate.min_accuracy": 0.5, "gate.min_class_recall": 0.9})
    assert "\x1b" not in decision["reasons"][0]


def test_predictions_on_another_test_split_are_refused(load: Callable[..., Config]) -> None:
    config = load()
    write_candidate(config, BETTER)
    write_champion(config, replace(OLD, split_digest="other"))
    files.write_bytes(config.paths.decision, b"old")
    with pytest.raises(DataError, match=r"v0\.0\.3 .*dvc repro champion"):
        gate(config)
    assert config.paths.decision.read_bytes() == b"old"


def test_predictions_of_another_model_are_refused(decide: Decide) -> None:
    with pytest.raises(DataError, match=r"predictions\.npz .*another.*dvc repro evaluate"):
        decide(BETTER, changes={"model": "another"})


@pytest.mark.parametrize("stage", ["champion", "export"])
def test_a_missing_champion_or_export_is_a_data_error(load, stage) -> None:
    config = load()
    write_candidate(config, BETTER)
    write_champion(config, None)
    getattr(config.paths, stage).rename("away")
    with pytest.raises(DataError, match=f"dvc repro {stage}"):
        gate(config)


WRONG = {
    "empty": ("{}", "accuracy"),
    "no model": (json.dumps({key: METRICS[key] for key in METRICS.keys() - {"model"}}), "model"),
    **{
        f"{key} {value}": (json.dumps(METRICS | {key: value}), key)
        for key, value in (("accuracy", "0.98"), ("accuracy", None), ("examples", 3.5), ("data", 1))
    },
    **{
        f"{key} {value}": (json.dumps(METRICS | {key: 0}).replace(f'"{key}": 0', f'"{key}": {value}'), value)
        for key in ("accuracy", "loss") for value in ("NaN", "-Infinity", "1e999")
    },
    "not JSON": ("{", "cannot be read"),
    "a list": ("[]", "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "named"), WRONG.values(), ids=WRONG)
def test_invalid_metrics_are_a_data_error_that_keeps_the_old_decision(load, content, named) -> None:
    config = load()
    write_champion(config, None)
    files.write_bytes(config.paths.metrics, content.encode())
    files.write_bytes(config.paths.decision, b"old")
    with pytest.raises(DataError, match=rf"metrics\.json .*{named}.*dvc repro evaluate"):
        gate(config)
    assert config.paths.decision.read_bytes() == b"old"


def test_a_model_that_is_recorded_wrongly_is_no_candidate(decide: Decide, workspace: Path) -> None:
    decide(Model())
    before = (workspace / "metrics" / "decision.json").read_bytes()
    used = {"params": {"params.yaml": {"train.seed": 0}}, "code": {"src/perennial/model/models": "1f.dir"}}
    files.write_json(Path("metrics/training.json"), {"inputs": used})
    lock = """\
stages:
  train:
    cmd: python -m perennial train
    deps: [{path: src/perennial/model/models, md5: 1f.dir}]
    params: {params.yaml: {train.seed: SEED}}
    outs: [{path: metrics/training.json, md5: 2f}]
"""
    Path("dvc.lock").write_text(lock.replace("SEED", "0"))
    assert decide(Model())["promote"]
    Path("dvc.lock").write_text(lock.replace("SEED", "1"))
    with pytest.raises(QualityError, match=r"train.seed is 1 in dvc.lock, and the training used 0"):
        decide(Model())
    assert (workspace / "metrics" / "decision.json").read_bytes() == before


def test_a_decision_that_is_recorded_with_other_limits_makes_no_version(decide: Decide) -> None:
    decide(Model())
    checked = config.load(Path("params.yaml"))
    used = {"params": {"params.yaml": {"gate.min_gain": 0.005}}, "code": {}}
    gate(checked, inputs=used)
    lock = (
        "stages: {gate: {params: {params.yaml: {gate.min_gain: GAIN}}, outs: [{path: metrics/decision.json}]}}"
    )
    Path("dvc.lock").write_text(lock.replace("GAIN", "0.005"))
    results.require_recorded(checked.paths.decision)
    Path("dvc.lock").write_text(lock.replace("GAIN", "0.2"))
    with pytest.raises(QualityError, match=r"min_gain is 0.2 in dvc.lock, and gate used 0.005.*-item gate"):
        results.require_recorded(checked.paths.decision)
