"""The rules of the section `monitor`: from observations to a decision, its reasons and its key."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from perennial.base.config.release import MonitorConfig
from perennial.base.project.pins import SourcePin
from perennial.live.monitor.traffic import TrafficSeen

RuleName = Literal["source", "max_age_days"]
State = Literal["none", "unchanged", "changed", "unreadable"]
MARK_LENGTH = 16  # digits of a digest in a key


@dataclass(frozen=True, kw_only=True)
class ChampionSeen:
    """The version in use."""

    version: str
    commit: str
    date: str  # of its promotion, ISO 8601
    age_days: float


@dataclass(frozen=True, kw_only=True)
class SourceSeen:
    """The content of `dataset.url`, compared with the data of the champion, or else of the checkout."""

    state: State  # none: there is no dataset.url
    now: SourcePin | None = None
    trained_on: SourcePin | None = None
    problem: str | None = None  # why it is unreadable


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All observations that the rules use."""

    pipeline: str
    champion: ChampionSeen | None
    source: SourceSeen
    traffic: TrafficSeen | None = None
    tried: str | None = None  # rejected run on these objects, compared with this champion
    problems: list[str] = field(default_factory=list)  # why something could not be observed


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The result of a rule: whether it is a reason to retrain."""

    name: RuleName
    limit: bool | float | None  # False and None: the rule is off
    fires: bool
    seen: str  # as text


@dataclass(frozen=True, kw_only=True)
class RetrainDecision:
    """Whether to retrain. Two decisions about the same change have the same key."""

    retrain: bool
    reason: str
    key: str | None
    rules: list[Rule]


def as_json(seen: Seen, decision: RetrainDecision) -> dict[str, Any]:
    """Observations and decision as JSON values."""
    return {**TypeAdapter(Seen).dump_python(seen, mode="json"), **asdict(decision)}


def decide(config: MonitorConfig, seen: Seen) -> RetrainDecision:
    """Apply the rules; all that fire cause a single retraining."""
    rules = list(_rules(config, seen))
    fired = [rule for rule in rules if rule.fires]
    if not fired:
        reason = "what a rule needs could not be looked at" if unmet(config, seen) else "no rule fires"
        return RetrainDecision(retrain=False, reason=reason, key=None, rules=rules)
    if seen.source.state == "unreadable":
        reason = "a run could not read the source either"
        return RetrainDecision(retrain=False, reason=reason, key=None, rules=rules)
    why = "; ".join(f"{rule.name}: {rule.seen}" for rule in fired)
    by_age_alone = [rule.name for rule in fired] == ["max_age_days"]
    if seen.tried and not by_age_alone:
        reason = f"run {seen.tried} has trained on this and was not promoted; {why}"
        return RetrainDecision(retrain=False, reason=reason, key=None, rules=rules)
    key = _age_key(config, seen) if by_age_alone else _data_key(seen)
    return RetrainDecision(retrain=True, reason=why, key=key, rules=rules)


def unmet(config: MonitorConfig, seen: Seen) -> bool:
    """Whether the source or traffic could not be read that a rule needs."""
    if seen.traffic and seen.traffic.problem:
        return True
    return config.source and seen.source.state == "unreadable"


def _rules(config: MonitorConfig, seen: Seen) -> Iterator[Rule]:
    changed = config.source and seen.source.state == "changed"
    yield Rule(name="source", limit=config.source, fires=changed, seen=_source(seen))
    most, champion = config.max_age_days, seen.champion
    if champion is None:
        yield Rule(name="max_age_days", limit=most, fires=False, seen="no champion yet")
        return
    shown = f"champion {champion.version} is {champion.age_days:.1f} days old"
    expected = "" if most is None else f", expected at most {most:g}"
    fires = most is not None and champion.age_days > most
    yield Rule(name="max_age_days", limit=most, fires=fires, seen=shown + expected)


def _source(seen: Seen) -> str:
    now, before = seen.source.now, seen.source.trained_on
    if seen.source.state == "none":
        return "no dataset.url"
    if now is None:
        return f"cannot be read: {seen.source.problem}"
    held = f"{now.url} holds {now.objects:,} objects, {now.bytes:,} bytes"
    what = f"champion {seen.champion.version}" if seen.champion else "this revision"
    if before is None or before.url is None:
        return f"{held}; {what} was trained on no source"
    if seen.source.state == "unchanged":
        return f"{held}, which {what} was trained on"
    other = "" if before.url == now.url else f" of {before.url}"
    return f"{held}; {what} was trained on {before.objects:,} objects, {before.bytes:,} bytes{other}"


def _data_key(seen: Seen) -> str:
    """A key for the champion and the objects of the source, from which a retraining starts."""
    now = seen.source.now
    listing = now.listing_sha256 if now else None
    champion = seen.champion.commit if seen.champion else "none"
    mark, objects = champion[:MARK_LENGTH], (listing or "none")[:MARK_LENGTH]
    return f"monitor/{seen.pipeline}/{mark}/{objects}"


def _age_key(config: MonitorConfig, seen: Seen) -> str:
    """A key for the champion that changes each time its age grows by the limit."""
    if seen.champion is None or config.max_age_days is None:
        raise ValueError("no champion and no limit of its age")
    periods = int(seen.champion.age_days // config.max_age_days)
    return f"monitor/{seen.pipeline}/{seen.champion.commit[:MARK_LENGTH]}/age-{periods}"
