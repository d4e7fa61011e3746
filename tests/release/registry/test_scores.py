"""The two scores of a version, from tags, records of runs and the decision of a checkout."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.git import git

from perennial.base import files
from perennial.base.config import Config
from perennial.model.evaluation import unbiased
from perennial.model.evaluation.results import CandidateRecord, ChampionRecord, Decision, UnbiasedScore
from perennial.release.registry import run_records, scores
from perennial.release.registry.versions import Registry, Version

FEW, MORE, MOST = (unbiased.score(9 * examples // 10, examples) for examples in (40, 200, 340))


def registry(*facts: dict[str, Any]) -> Registry:
    """Versions v0.0.1 and so on, each of which became champion."""
    found = tuple(
        Version(name=f"v0.0.{number}", commit=f"{number}" * 40, date=number, facts=each)
        for number, each in enumerate(facts, 1)
    )
    return Registry(
        artifact="classifier", versions=found, champions=found, champion=found[-1], only_here=(),
        last_version=(0, 0, len(found)), last_number=len(found), last_date=len(found),
    )  # fmt: skip


def decision(version: str | None = None, score: dict[str, Any] | None = None) -> Decision:
    champion = version and ChampionRecord(
        version=version, accuracy=0.9, unbiased=UnbiasedScore(**score) if score else None
    )
    candidate = CandidateRecord(accuracy=0.91, examples=2000, data="d", model="m")
    return Decision(promote=False, reasons=["worse"], candidate=candidate, champion=champion or None)


@pytest.fixture
def recorded(load: Callable[..., Config]) -> Callable[..., Config]:
    """Parameters of a folder with records of runs, each with this decision, in this order."""

    def record(*decisions: tuple[Decision, int | None]) -> Config:
        config = load()
        for number, (each, comparison) in enumerate(decisions):
            run_records.start(config, f"night-{number}")
            files.write_json(config.paths.decision, each.as_json())
            run_records.add(config, f"night-{number}", **run_records.made(config), comparison=comparison)
        config.paths.decision.unlink(missing_ok=True)
        return config

    return record


def test_a_version_has_the_score_that_chose_it_and_none_that_is_unbiased_at_first(recorded):
    known = registry({"accuracy": 0.912, "examples": 2000, "comparison": 37})
    (found,) = scores.listing(recorded(), known)
    assert (found["examples"], found["comparison"], found["unbiased"]) == (2000, 37, None)
    assert found["negative_flips"] is None  # no opponent, or an earlier program
    assert scores.lines(found) == [
        "0.912 on 2,000 test examples, which chose it (comparison 37)",
        "not known yet on examples that played no part (0 of 100 needed)",
    ]


def test_the_unbiased_score_of_the_champion_is_that_of_the_last_decision_against_it(recorded):
    decisions = [decision("v0.0.2", FEW), decision("v0.0.1", MOST), decision("v0.0.2", MORE)]
    config = recorded(*((each, number) for number, each in enumerate(decisions, 2)))
    newest, oldest = scores.listing(config, registry({}, {"accuracy": 0.9}))
    assert (newest["unbiased"], oldest["unbiased"]) == (MORE, MOST)
    files.write_json(config.paths.decision, decision("v0.0.2", MOST).as_json())
    assert scores.of_version(config, registry({}, {}), "v0.0.2")["unbiased"] == MOST


def pushed(config: Config, run: str, minute: int) -> None:
    """Commit the record of a run to its branch, as a run does."""
    record = config.paths.runs / run / run_records.FILE
    files.write_json(record, {"run": run, **run_records.made(config)})
    git("checkout", "-q", "--orphan", f"run/{run}")
    git("add", "-f", str(record))
    git("commit", "-qm", run, date=f"2026-11-29T02:{minute:02}:00Z")


def test_the_score_in_office_is_of_what_joined_each_night_by_that_nights_champion(load):
    """A year in short: promotions, nights without one, examples for audit, and a rollback."""
    config, random = load(), np.random.default_rng(7)
    right = random.random((9, 400)) < np.linspace(0.5, 0.95, 9)[:, None]  # of each version on each example
    audited, known, champion = np.arange(400) % 5 == 0, 100, 0
    facts: list[dict[str, Any]] = [{"audit": unbiased.score(int(right[0, :100][audited[:100]].sum()), 20)}]
    started, expected = [100], [0, 0]
    git("init", "-q")
    for night in range(24):
        before, known = known, known + 7
        fresh = audited | (np.arange(400) >= started[champion])
        fresh[known:] = False
        score = unbiased.score(int(right[champion, fresh].sum()), int(fresh.sum()))
        files.write_json(config.paths.decision, decision(f"v0.0.{champion + 1}", score).as_json())
        pushed(config, f"night-{night}", night)
        if night < 17 or len(facts) > 5:  # but not by the version that came back
            expected = [expected[0] + right[champion, before:known].sum(), expected[1] + known - before]
        if night == 16:
            champion -= 1  # a rollback: no tag has the last score of the version that was in office
        elif night % 4 == 2:
            old = audited & (np.arange(400) < known)
            facts.append({"opponent": f"v0.0.{champion + 1}", "opponent_unbiased": score})
            champion, started = len(facts) - 1, [*started, known]
            facts[-1]["audit"] = unbiased.score(int(right[champion, old].sum()), int(old.sum()))
    config.paths.decision.unlink()
    found = scores.in_office(config, registry(*facts))
    assert (found["correct"], found["examples"]) == tuple(expected)
    shown = scores.lines(scores.of_version(config, registry(*facts), "v0.0.7"))
    assert shown[-1].endswith(f"] on the last {expected[1]} new examples, by whichever version was in office")


def test_a_score_in_office_that_is_not_possible_or_of_few_examples_is_not_shown(load):
    term = {"opponent": "v0.0.1", "opponent_unbiased": MORE}
    assert scores.in_office(load(), registry({"audit": MOST}, term)) == unbiased.score(0, 0)
    assert scores.in_office(load(), registry({}, term)) == MORE
    found = scores.of_version(load(), registry({}, {"opponent": "v0.0.1", "opponent_unbiased": FEW}), "v0.0.1")
    assert not any("in office" in line for line in scores.lines(found))


@pytest.mark.parametrize(
    "wrong", [{"examples": 5}, {"correct": 6, "examples": 5}, {"correct": 0, "examples": -1}]
)
def test_an_unbiased_score_is_that_in_a_tag_unless_nobody_can_have_measured_it(recorded, wrong):
    for score, shown in ((MORE, MORE), (wrong, None)):
        known = registry({}, {"opponent": "v0.0.1", "opponent_unbiased": score})
        assert scores.of_version(recorded(), known, "v0.0.1")["unbiased"] == shown
    assert scores.of_version(recorded(), registry({"audit": MORE}), "v0.0.1")["unbiased"] == MORE


def test_each_recorded_decision_is_a_comparison(recorded):
    config = recorded((decision(), 1), (decision(), 2))
    first = registry({"comparison": 1})
    assert scores.facts(config, decision("v0.0.1", MORE), first, "night-9") == {
        "examples": 2000, "comparison": 3, "negative_flips": None, "audit": None, "opponent_unbiased": MORE,
    }  # fmt: skip
    judged = decision().model_copy(update={"comparison": {"negative_flips": 0.012}})
    facts = scores.facts(config, judged, first, "night-9")
    assert scores.listing(config, registry(facts))[0]["negative_flips"] == 0.012
    assert scores.facts(config, decision(), first, "night-1")["comparison"] == 2  # recorded again
    assert scores.facts(config, decision(), registry({"comparison": 7}), "night-9")["comparison"] == 8
