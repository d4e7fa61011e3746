"""The gate with `gate.traffic`: random labels of traffic in the test split protect production, or decide."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.errors import ConfigError
from perennial.data.datasets.readers import labelled
from perennial.model.evaluation.comparison import Champion
from perennial.model.evaluation.predictions import Predictions, find_slices
from perennial.model.evaluation.results import Decision
from perennial.release.gate import compared
from perennial.release.registry import verdict
from perennial.stages.gate import gate

OWN = 2000  # test images of the source
Decide = Callable[..., Decision]


@pytest.fixture
def decide(load: Callable[..., Config]) -> Decide:
    """The decision where models differ on `own` images, (won, lost), and on `of_traffic` of `random` ones."""

    def decided(
        own: tuple[int, int], of_traffic: tuple[int, int], random: int = 300, validation: float | None = None,
        **options: object,
    ) -> Decision:  # fmt: skip
        config = load(**{"gate.min_accuracy": 0.5, "gate.max_class_drop": None, **options})
        count = OWN + random
        ours, theirs = np.zeros(count, np.int64), np.zeros(count, np.int64)  # all images are of class 0
        for start, (won, lost) in ((0, own), (OWN, of_traffic)):
            theirs[start : start + won] = 1
            ours[start + won : start + won + lost] = 1
        rows = [("",)] * OWN + [("random",)] * random
        candidate, champion = (
            Predictions(
                labels=np.zeros(count, np.int64), probabilities=np.eye(2, dtype=np.float32)[which] * 0.8 + 0.1,
                classes=("cat", "dog"), split="test", data="d", split_digest="t", model=name,
                slices=find_slices([labelled.COLUMN], rows),
            )
            for which, name in ((ours, "m"), (theirs, "old"))
        )  # fmt: skip
        candidate.write(config.paths.predictions)
        score = float(candidate.right.mean())
        files.write_json(config.paths.metrics, {
            "accuracy": score, "loss": 0.1, "examples": count, "data": "d", "model": "m", "recall_at_5": 1.0,
        })  # fmt: skip
        files.write_json(config.paths.training, {
            "stopped_by": "epochs", "epoch": 1, "step": 1, "kept": 1, "weights_sha256": "m",
            "evaluations": [{"step": 1, "accuracy": 0.9}],
        })  # fmt: skip
        files.write_bytes(config.paths.export / "saved_model.pb", b"model")
        theirs_on = None if validation is None else 0.9 - validation
        facts: dict[str, Any] = {"commit": "c" * 40, "version": "v0.0.3", "validation": theirs_on}
        Champion.of(champion, **facts, comparisons=4, promotions=0).write(config.paths.champion)
        gate(config)
        return documents.read_checked(config.paths.decision, Decision, "")

    return decided


def rules(decision: Decision) -> dict[str, bool]:
    return {check.name: check.passed for check in decision.checks}


PROTECTS, DECIDES = {"gate.traffic": "protects"}, {"gate.traffic": "decides"}
HIDDEN = (16, 24), (32, 2)  # 10 points better on traffic, and 0.4 points worse on the source's images
HARMFUL = (60, 10), (5, 20)  # 5 points worse on traffic, and 2.5 points better on the source's images
EVERYWHERE = (50, 10), (20, 5)
CHANCE = "rejected: better on 48 test images, worse on 26, which may be chance"
WON, LOST = "passed the gate: better than v0.0.3 on", "traffic may have lost 9.9 points"
NO_GAIN = "rejected: no gain on traffic beyond chance"
CASES: list[tuple[tuple[int, int], tuple[int, int], dict[str, str], str]] = [
    (*HIDDEN, {}, CHANCE),
    (*HIDDEN, PROTECTS, CHANCE),
    (*HIDDEN, DECIDES, f"{WON} 32 test images of traffic, worse on 2"),
    (*HARMFUL, {}, f"{WON} 65 test images, worse on 30"),
    (*HARMFUL, PROTECTS, f"rejected: {LOST}"),
    (*HARMFUL, DECIDES, f"{NO_GAIN}; {LOST}"),
    (*EVERYWHERE, PROTECTS, f"{WON} 70 test images, worse on 15"),
    (*EVERYWHERE, DECIDES, f"{WON} 70 test images, worse on 15"),
    ((0, 150), (32, 2), DECIDES, "rejected: traffic: (none) fell from 100 % to 92 %"),
    ((10, 10), (5, 5), DECIDES, f"{NO_GAIN}; a tie: better on 15 test images, worse on 15"),
]


@pytest.mark.parametrize(("own", "of_traffic", "options", "sentence"), CASES)
def test_traffic_protects_or_decides(decide: Decide, own, of_traffic, options, sentence) -> None:
    decision = decide(own, of_traffic, **options)
    assert verdict.sentence(decision) == sentence
    assert decision.promote == sentence.startswith("passed")


def test_each_of_two_ways_has_half_of_the_level(decide: Decide) -> None:
    """13 won and 1 lost have the p-value 0.00092; 12 won and 1 lost 0.0017: between alpha / 2 and alpha."""
    gained = {"gate.min_gain": 0.0, **DECIDES}
    assert rules(decide((1, 1), (13, 1), **gained))["traffic_gain"] is True
    assert rules(decide((10, 10), (12, 1), **gained))["traffic_gain"] is False
    assert {
        check.limit for check in decide((1, 1), (13, 1), **gained).checks if check.name == "traffic_gain"
    } == {0.001}
    assert rules(decide(*HIDDEN, **DECIDES, **{"gate.min_gain": 0.11}))["traffic_gain"] is False
    budget = decide((40, 5), (9, 3), **DECIDES, **{"gate.false_share": 0.1})
    assert next(check.limit for check in budget.checks if check.name == "false_share") == 0.1 / 365 / 2
    found = compared.facts(budget)
    assert found is not None
    assert (found["level"], found["comparisons"]) == (0.1 / 365 / 2, 4)


@pytest.mark.parametrize("mode", ["protects", "decides"])
def test_below_100_labels_all_images_decide_and_the_decision_says_so(decide: Decide, mode: str) -> None:
    options = {"gate.traffic": mode}
    few, before = (decide((50, 10), (0, 3), random=99, **each) for each in (options, {}))
    assert rules(few) == rules(before) | {"traffic_labels": True}
    assert "gate.traffic waits: the test split has fewer than 100 random labels of traffic" in few.reasons
    assert "traffic_labels" not in rules(decide((50, 10), (0, 3), random=100, **options))
    none = decide((50, 10), (0, 0), random=0, **options)
    assert rules(none)["traffic_labels"]


def test_only_a_gain_on_traffic_needs_none_on_validation(decide: Decide) -> None:
    """Validation may hold no traffic; a model that gains on all images still needs it."""
    loss = -0.002
    by_traffic = decide((16, 24), (32, 2), validation=loss, **DECIDES, **{"gate.false_share": 0.1})
    assert (by_traffic.promote, "validation_gain" in rules(by_traffic)) == (True, False)
    by_all = decide((50, 10), (20, 5), validation=loss, **DECIDES, **{"gate.false_share": 0.1})
    assert (by_all.promote, rules(by_all)["validation_gain"]) == (False, False)
    assert verdict.sentence(by_all) == (f"{NO_GAIN}; validation accuracy is 0.2 points below the champion's")
    assert by_all.budget is not None  # traffic was looked at, so the comparison counts
    assert decide((50, 10), (20, 5), validation=loss, **PROTECTS).comparison is None
    assert decide((50, 10), (20, 5), validation=0.01, **DECIDES).promote


def test_a_record_of_a_promotion_by_traffic_has_its_counts(decide: Decide) -> None:
    found = compared.facts(decide((16, 24), (32, 2), **DECIDES))
    assert found is not None
    assert {name: found[name] for name in ("examples", "won", "lost", "level", "passed")} == {
        "examples": 300, "won": 32, "lost": 2, "level": 0.001, "passed": True,
    }  # fmt: skip
    assert found["gain"] == pytest.approx(0.1)
    assert 0 < found["p_value"] < 1e-6


def test_the_rules_know_the_labels_by_the_name_of_their_column() -> None:
    assert f"{labelled.COLUMN}: random" == compared.TRAFFIC


@pytest.mark.parametrize("needed", ["gate.max_slice_drop", "gate.significance or gate.false_share"])
def test_traffic_without_a_limit_is_refused(load: Callable[..., Config], needed: str) -> None:
    with pytest.raises(ConfigError, match=f"gate.traffic decides needs {needed}, got null"):
        load(**DECIDES, **{needed.split(maxsplit=1)[0]: None})


def test_the_budget_takes_the_place_of_significance(load: Callable[..., Config]) -> None:
    assert load(**DECIDES, **{"gate.significance": None, "gate.false_share": 0.1}).gate.traffic == "decides"
