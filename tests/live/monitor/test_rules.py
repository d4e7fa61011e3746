"""Rules of the monitor: which of them fire, in which words, and the key of a change."""

from dataclasses import replace

import pytest

from perennial.base.config.release import MonitorConfig
from perennial.base.project.pins import SourcePin
from perennial.live.monitor.rules import ChampionSeen, Seen, SourceSeen, decide, unmet

OLD = SourcePin(url="s3://b/p", objects=36, bytes=3600, listing_sha256="a" * 64)
NOW = SourcePin(url="s3://b/p", objects=1038, bytes=103800, listing_sha256="b" * 64)
CHAMPION = ChampionSeen(version="v0.0.3", commit="c" * 40, date="2026-01-01T00:00:00+00:00", age_days=9.5)
CHANGED = SourceSeen(state="changed", now=NOW, trained_on=OLD)
SEEN = Seen(pipeline="classifier", champion=CHAMPION, source=CHANGED)
UNCHANGED = replace(SEEN, source=SourceSeen(state="unchanged", now=OLD, trained_on=OLD))


TRAINED_ON = "champion v0.0.3 was trained on 36 objects, 3,600 bytes"


def rules(**values: object) -> MonitorConfig:
    """The rules of the section, without that on the source unless it is named."""
    return MonitorConfig.model_validate({"source": False, **values})


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"source": True}, f"source: s3://b/p holds 1,038 objects, 103,800 bytes; {TRAINED_ON}"),
        ({"max_age_days": 7.0}, "max_age_days: champion v0.0.3 is 9.5 days old, expected at most 7"),
    ],
)
def test_each_rule_fires_with_its_numbers(limits: dict[str, object], words: str) -> None:
    found = decide(rules(**limits), SEEN)
    assert (found.retrain, found.reason, decide(rules(), SEEN).retrain) == (True, words, False)


def test_at_its_limit_a_rule_does_not_fire_nor_does_any_for_an_unchanged_source() -> None:
    found = decide(rules(source=True, max_age_days=9.5), UNCHANGED)
    assert [rule.name for rule in found.rules if rule.fires] == []


def test_one_change_has_one_key_whichever_rules_fire() -> None:
    keys = {decide(rules(source=True, max_age_days=limit), SEEN).key for limit in (None, 7.0)}
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
    seen = replace(SEEN, source=source, problems=["no access"])
    found = decide(rules(source=True, max_age_days=7.0), seen)
    assert (found.retrain, found.key, found.rules[0].seen) == (False, None, "cannot be read: no access")


def test_what_no_rule_needs_may_be_missing() -> None:
    unreadable = SourceSeen(state="unreadable", problem="no access")
    seen = replace(SEEN, source=unreadable, problems=["no access"])
    assert [unmet(rules(source=source), seen) for source in (True, False)] == [True, False]
