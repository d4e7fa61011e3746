"""What `perennial monitor` observes, and its rules: a decision, its reasons and its key."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import TypeAdapter

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.config.release import MonitorConfig
from perennial.base.errors import PerennialError
from perennial.base.project.pins import ChampionPin, SourcePin
from perennial.data.sources.pin import listed_source, pin_of
from perennial.live.monitor.traffic import TrafficSeen
from perennial.live.monitor.traffic import look as look_at_traffic
from perennial.release.registry.access import OpenRegistry, open_registry
from perennial.release.registry.versions import Version

RuleName = Literal["source", "max_age_days"]
State = Literal["none", "unchanged", "changed", "unreadable"]
MARK_LENGTH = 16  # digits of a digest in a key
DAY_S = 86_400
PINNED_BY_RUN = (SourcePin.FILE, ChampionPin.FILE)


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
    why = "; ".join(f"{rule.name}: {rule.seen}" for rule in fired)
    by_age_alone = [rule.name for rule in fired] == ["max_age_days"]
    if not fired:
        why = "what a rule needs could not be looked at" if unmet(config, seen) else "no rule fires"
    elif seen.source.state == "unreadable":
        why = "a run could not read the source either"
    elif seen.tried and not by_age_alone:
        why = f"run {seen.tried} has trained on this and was not promoted; {why}"
    else:
        limit_days = config.max_age_days if by_age_alone else None
        return RetrainDecision(retrain=True, reason=why, key=_key(seen, limit_days), rules=rules)
    return RetrainDecision(retrain=False, reason=why, key=None, rules=rules)


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


def _key(seen: Seen, limit_days: float | None) -> str:
    """A key for the champion and the objects of the source, or for each time that its age grew by a limit."""
    champion, now = seen.champion, seen.source.now
    if champion and limit_days is not None:
        what = f"age-{int(champion.age_days // limit_days)}"
    else:
        what = ((now and now.listing_sha256) or "none")[:MARK_LENGTH]
    return f"monitor/{seen.pipeline}/{(champion.commit if champion else 'none')[:MARK_LENGTH]}/{what}"


def look(config: Config, now: datetime | None = None) -> Seen:
    """Collect everything that the rules need, for the champion on the git remote."""
    opened = open_registry(config)
    if opened.unreachable:
        raise PerennialError(f"{opened.remote} cannot be reached: {opened.unreachable}; nothing was looked at")
    version = opened.registry.champion
    champion = None
    if version:
        date = datetime.fromtimestamp(version.date, UTC)
        age_days = max(0.0, ((now or datetime.now(UTC)) - date).total_seconds() / DAY_S)
        champion = ChampionSeen(
            version=version.name, commit=version.commit, date=date.isoformat(), age_days=age_days
        )
    traffic = look_at_traffic(config, version)
    seen = Seen(
        pipeline=config.record.artifact,
        champion=champion,
        source=SourceSeen(state="none"),
        traffic=traffic,
        problems=[traffic.problem] if traffic and traffic.problem else [],
    )
    if config.dataset.url is None:
        return seen
    before = _trained_on(opened, version)
    try:
        with listed_source(config) as (listing, _):
            current = pin_of(listing)
    except PerennialError as error:
        source = SourceSeen(state="unreadable", trained_on=before, problem=str(error))
        return replace(seen, source=source, problems=[*seen.problems, str(error)])
    state: State = "unchanged" if current == before else "changed"
    source = SourceSeen(state=state, now=current, trained_on=before)
    return replace(seen, source=source, tried=_tried(opened, current, version))


def _trained_on(opened: OpenRegistry, version: Version | None) -> SourcePin:
    """The source pin of the champion's commit, or else of the checkout's."""
    revision = version.commit if version else "HEAD"
    text = opened.repository.read(revision, SourcePin.FILE)
    if text is None:
        return SourcePin()
    remedy = "`perennial pin source` writes it"
    return documents.parse_checked(text.encode(), str(SourcePin.FILE), SourcePin, remedy)


def _tried(opened: OpenRegistry, source: SourcePin, version: Version | None) -> str | None:
    """Find a recorded run that trained on these objects and was compared with this champion."""
    champion = ChampionPin(version=version.name, commit=version.commit) if version else ChampionPin()
    git, above = opened.repository, "refs/heads/" if opened.remote is None else opened.tracking("")
    runs = git.run("for-each-ref", "--format=%(refname)", f"{above}run/**").split()
    expected = [
        git.run("hash-object", "--stdin", stdin=files.json_bytes(pin.content()).decode())
        for pin in (source, champion)
    ]
    wanted = [f"{run}:./{file}\n" for run in runs for file in PINNED_BY_RUN]
    if not wanted:
        return None
    # A blob's name is the digest of its content; missing files have none.
    found = git.run("cat-file", "--batch-check=%(objectname)", stdin="".join(wanted)).splitlines()
    pairs = zip(found[::2], found[1::2], strict=True)
    tried = [run for run, pair in zip(runs, pairs, strict=True) if pair == tuple(expected)]
    return tried[-1].removeprefix(f"{above}run/") if tried else None
