"""Rules of the monitor: which of them fire, in which words, and the key of a change."""

from dataclasses import replace

import pytest

from perennial.base.config.release import MonitorConfig
from perennial.base.project.pins import SourcePin
from perennial.live.monitor.rules import ChampionSeen, DriftSeen, New, Score, Seen, SourceSeen, decide, unmet

OLD = SourcePin(url="s3://b/p", objects=36, bytes=3600, listing_sha256="a" * 64)
NOW = SourcePin(url="s3://b/p", objects=1038, bytes=103800, listing_sha256="b" * 64)
CHAMPION = ChampionSeen(version="v0.0.3", commit="c" * 40, date="2026-01-01T00:00:00+00:00", age_days=9.5)
SCORE = Score(accuracy=0.88, low=0.85, high=0.9, examples=500, refused=0, unknown_classes=[])
DRIFT = DriftSeen(labels=0.2, label="cat", brightness=0.3)
NEW = New(objects=1002, examples=500, unreadable=2, per_class={"cat": 500}, score=SCORE, drift=DRIFT)
CHANGED = SourceSeen(state="changed", now=NOW, trained_on=OLD)
SEEN = Seen(pipeline="classifier", champion=CHAMPION, source=CHANGED, new=NEW)
UNCHANGED = replace(SEEN, source=SourceSeen(state="unchanged", now=OLD, trained_on=OLD), new=None)


TRAINED_ON = "champion v0.0.3 was trained on 36 objects, 3,600 bytes"


def rules(**values: object) -> MonitorConfig:
    """The rules of the section, without that on the source unless it is named."""
    return MonitorConfig.model_validate({"source": False, **values})


def fired(seen: Seen, **values: object) -> list[str]:
    return [rule.name for rule in decide(rules(**values), seen).rules if rule.fires]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"source": True}, f"source: s3://b/p holds 1,038 objects, 103,800 bytes; {TRAINED_ON}"),
        (
            {"min_accuracy": 0.9},
            "min_accuracy: accuracy 0.8800 (0.8500 to 0.9000) on 500 new examples, expected at least 0.9",
        ),
        (
            {"max_label_drift": 0.1},
            "max_label_drift: the share of class cat differs by 0.200 in new examples, expected at most 0.1",
        ),
        (
            {"max_brightness_drift": 0.1},
            "max_brightness_drift: the brightness of 0.300 of new examples differs, expected at most 0.1",
        ),
        ({"max_age_days": 7.0}, "max_age_days: champion v0.0.3 is 9.5 days old, expected at most 7"),
    ],
)
def test_each_rule_fires_with_its_numbers(limits: dict[str, object], words: str) -> None:
    found = decide(rules(**limits), SEEN)
    assert (found.retrain, found.reason, decide(rules(), SEEN).retrain) == (True, words, False)


def test_at_its_limit_a_rule_does_not_fire_nor_does_any_for_an_unchanged_source() -> None:
    limits = {"min_accuracy": 0.88, "max_label_drift": 0.2, "max_brightness_drift": 0.3, "max_age_days": 9.5}
    assert fired(SEEN, **limits) == []
    limits = {"source": True, "min_accuracy": 1.0, "max_label_drift": 0.01, "max_age_days": 10.0}
    assert fired(UNCHANGED, **limits) == []


def test_too_few_examples_are_no_reason() -> None:
    limits = {"min_accuracy": 0.99, "max_label_drift": 0.01, "max_brightness_drift": 0.01, "min_examples": 501}
    found = decide(rules(**limits), SEEN)
    assert (found.retrain, found.key) == (False, None)
    assert found.rules[1].seen.endswith("; 500 new examples, at least 501 are needed")
    assert len(fired(SEEN, **{**limits, "min_examples": 500})) == 3


def test_one_change_has_one_key_whichever_rules_fire() -> None:
    keys = {decide(rules(**limits), SEEN).key for limits in ({"source": True}, {"min_accuracy": 0.9})}
    assert keys == {f"monitor/classifier/{'c' * 16}/{'b' * 16}"}


@pytest.mark.parametrize(
    "other",
    [
        replace(SEEN, champion=replace(CHAMPION, commit="d" * 40)),
        replace(SEEN, champion=None),
        replace(SEEN, pipeline="other"),
        replace(SEEN, source=replace(CHANGED, now=OLD.model_copy(update={"listing_sha256": "e" * 64}))),
    ],
)
def test_another_champion_pipeline_or_listing_has_another_key(other: Seen) -> None:
    config = rules(source=True)
    assert decide(config, other).key != decide(config, SEEN).key


@pytest.mark.parametrize(("days", "period"), [(9.5, 1), (13.9, 1), (14.1, 2)])
def test_age_alone_fires_once_a_period(days: float, period: int) -> None:
    seen = replace(UNCHANGED, champion=replace(CHAMPION, age_days=days), tried="a-run")
    found = decide(rules(source=True, max_age_days=7.0), seen)
    assert found.key == f"monitor/classifier/{'c' * 16}/age-{period}"


def test_what_a_run_has_tried_is_not_tried_again() -> None:
    found = decide(rules(source=True), replace(SEEN, tried="a-run"))
    assert (found.retrain, found.key) == (False, None)
    assert found.reason.startswith("run a-run has trained on this and was not promoted; source: s3://b/p holds")


def test_a_source_that_cannot_be_read_starts_nothing() -> None:
    source = SourceSeen(state="unreadable", trained_on=OLD, problem="no access")
    seen = replace(SEEN, source=source, new=None, problems=["no access"])
    found = decide(rules(source=True, max_age_days=7.0), seen)
    assert (found.retrain, found.key, found.rules[0].seen) == (False, None, "cannot be read: no access")


def test_what_no_rule_needs_may_be_missing() -> None:
    no_score = replace(SEEN, new=replace(NEW, score=None), problems=["no export"])
    no_source = replace(
        SEEN, source=SourceSeen(state="unreadable", problem="no access"), problems=["no access"]
    )
    wanted = {"source": (True, None), "score": (False, 0.9)}
    found = {
        name: [unmet(rules(source=source, min_accuracy=limit), seen) for seen in (no_score, no_source, SEEN)]
        for name, (source, limit) in wanted.items()
    }
    assert found == {"source": [False, True, False], "score": [True, True, False]}
