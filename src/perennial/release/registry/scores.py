"""The two scores of a version: on the test examples that chose it, and on those that played no part.

The first is in the tag of the version. The second grows with the data: every later decision measures it of its
opponent, and is kept in the record of its run, and of the last one in the tag of the version that followed.
Together, these are the score in office: of every test example that joined, by that night's champion.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.errors import PerennialError
from perennial.model.evaluation import unbiased
from perennial.model.evaluation.results import Decision, Metrics, UnbiasedScore, named_score
from perennial.release.gate import compared
from perennial.release.registry import checkout_state, run_records
from perennial.release.registry.versions import Registry

FACTS = ("data", "decision", "examples", "comparison", "negative_flips")  # of a tag
IN_OFFICE = "the last {:,} new examples, by whichever version was in office"
LAST = 10  # records of runs that are read


def facts(config: Config, decision: Decision, registry: Registry, run: str) -> dict[str, Any]:
    """The facts of a decision about the scores, for the tag of its version."""
    # `comparison` counts the recorded decisions up to this one: each of them chose by the same test split.
    champion = decision.champion
    return {
        "examples": decision.candidate.examples,
        "comparison": _number(config, registry, run),
        "negative_flips": (decision.comparison or {}).get("negative_flips"),
        "audit": _audit(config, decision),
        "opponent_unbiased": champion.unbiased.model_dump() if champion and champion.unbiased else None,
        **({"compared": compared.facts(decision)} if decision.budget else {}),
    }


def _audit(config: Config, decision: Decision) -> dict[str, Any] | None:
    """The score of this checkout's model on test examples that no decision reads."""
    try:
        metrics = documents.read_checked(config.paths.metrics, Metrics, "`dvc repro evaluate` makes it")
    except PerennialError:
        return None
    same = metrics.model == decision.candidate.model
    return metrics.audit.model_dump() if same and metrics.audit else None


def _number(config: Config, registry: Registry, run: str) -> int:
    records = run_records.listing(config, LAST)
    own = [each["comparison"] for each in records if each["run"] == run and each.get("comparison")]
    before = [each.get("comparison") or 0 for each in records if each["run"] != run]
    tags = [version.facts.get("comparison") or 0 for version in registry.versions]
    if own:  # a run that is recorded again
        return int(own[0])
    return max([*before, *tags, 0]) + 1


def listing(config: Config, registry: Registry) -> list[dict[str, Any]]:
    """The versions as `perennial versions --json` prints them, the newest first, with both scores."""
    measured = list(_measured(config, registry))
    known = (*registry.versions, *registry.only_here)
    newest_first = sorted(known, key=lambda each: (each.order, not each.only_here), reverse=True)
    return [
        {
            "version": version.name,
            "commit": version.commit,
            "date": datetime.fromtimestamp(version.date, UTC).isoformat(timespec="seconds"),
            "champion": version is registry.champion,
            **{
                fact: version.facts.get(fact)
                for fact in ("map" if "map" in version.facts else "accuracy", *FACTS)
            },
            "only_here": version.only_here,
            "unbiased": _largest(score for name, score in measured if name == version.name),
        }
        for version in newest_first
    ]


def of_version(config: Config, registry: Registry, name: str) -> dict[str, Any] | None:
    """The entry of a version in `listing`, with the score in office; None if there is no such version."""
    found = next((each for each in listing(config, registry) if each["version"] == name), None)
    return found and found | {"in_office": in_office(config, registry)}


def lines(version: Mapping[str, Any]) -> Sequence[str]:
    """The scores of an entry of `listing` in words, and that in office where it is known."""
    name, score = named_score(version)
    by_label = "map" in version  # its second score is the share of exact matches
    prefix = "exact match " if by_label else ""
    office = version.get("in_office") or {"accuracy": None}
    known = [prefix + unbiased.text(version["unbiased"])]
    known += [prefix + unbiased.text(office, IN_OFFICE)] if office["accuracy"] is not None else []
    if score is None:
        return known
    chosen = unbiased.chosen_text(score, version["examples"], version["comparison"])
    return [f"{name} {chosen}" if by_label else chosen, *known]


def in_office(config: Config, registry: Registry) -> dict[str, Any]:
    """The score on the test examples that joined, each by the version in office, as `unbiased.score`.

    A version counts with the decision that chose the next one, in its tag, or else with the last one in git;
    one that a rollback brought back only with its first term, so that no example counts twice.
    """
    in_tags = [(each.facts.get("opponent"), each.facts.get("opponent_unbiased")) for each in registry.versions]
    terms = dict(reversed([*_valid(in_tags), *_valid(_decided(config))]))  # the first of each version counts
    for_audit = dict(_valid((each.name, each.facts.get("audit")) for each in registry.versions))
    right, examples = 0, 0
    for name, term in terms.items():
        old = for_audit.get(name, UnbiasedScore(examples=0, correct=0))  # in the test split from the start
        hits, joined = term.correct - old.correct, term.examples - old.examples
        if 0 <= hits <= joined:  # else images were forgotten, or somebody wrote it by hand
            right, examples = right + hits, examples + joined
    return unbiased.score(right, examples)


def _decided(config: Config) -> Iterator[tuple[object, object]]:
    """Yield the opponents of the decisions in git with their scores, the newest first."""
    for decision in run_records.pushed_decisions(config):
        with suppress(KeyError, TypeError):
            yield decision["champion"]["version"], decision["champion"]["unbiased"]


def _measured(config: Config, registry: Registry) -> Iterator[tuple[str, UnbiasedScore]]:
    """Yield each known score on examples that played no part, with the name of its version."""
    candidates: list[tuple[object, object]] = [
        (version.facts.get("opponent"), version.facts.get("opponent_unbiased")) for version in registry.versions
    ]
    candidates += [(version.name, version.facts.get("audit")) for version in registry.versions]
    for record in run_records.listing(config, LAST):
        opponent = (record.get("decision") or {}).get("champion") or {}
        candidates.append((opponent.get("version"), opponent.get("unbiased")))
    try:
        champion = checkout_state.read_decision(config).champion
    except PerennialError:
        champion = None
    if champion and champion.unbiased:
        candidates.append((champion.version, champion.unbiased.model_dump()))
    yield from _valid(candidates)


def _valid(found: Iterable[tuple[object, object]]) -> Iterator[tuple[str, UnbiasedScore]]:
    for name, score in found:
        with suppress(ValidationError):  # none, or one that somebody wrote by hand
            yield str(name), UnbiasedScore.model_validate(score)


def _largest(scores: Iterable[UnbiasedScore]) -> dict[str, Any] | None:
    """The score on the most examples: the last one, since examples only join."""
    largest = max(scores, key=lambda score: score.examples, default=None)
    if largest is None or not 0 <= largest.correct <= largest.examples:
        return None
    return unbiased.score(largest.correct, largest.examples)
