"""Observe the source, the champion and its traffic, for `perennial monitor`."""

from dataclasses import replace
from datetime import UTC, datetime

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.errors import PerennialError
from perennial.base.project.pins import ChampionPin, SourcePin
from perennial.data.sources.pin import listed_source, pin_of
from perennial.live.monitor.rules import ChampionSeen, Seen, SourceSeen, State
from perennial.live.monitor.traffic import look as look_at_traffic
from perennial.release.registry.access import OpenRegistry, open_registry
from perennial.release.registry.versions import Version

DAY_S = 86_400
PINNED_BY_RUN = (SourcePin.FILE, ChampionPin.FILE)


def look(config: Config, now: datetime | None = None) -> Seen:
    """Collect everything that the rules need, for the champion on the git remote."""
    opened = open_registry(config)
    if opened.unreachable:
        raise PerennialError(f"{opened.remote} cannot be reached: {opened.unreachable}; nothing was looked at")
    version = opened.registry.champion
    champion = _champion(version, now or datetime.now(UTC)) if version else None
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


def _champion(version: Version, now: datetime) -> ChampionSeen:
    date = datetime.fromtimestamp(version.date, UTC)
    age_days = max(0.0, (now - date).total_seconds() / DAY_S)
    return ChampionSeen(version=version.name, commit=version.commit, date=date.isoformat(), age_days=age_days)


def _trained_on(opened: OpenRegistry, version: Version | None) -> SourcePin:
    """The source pin of the champion's commit, or else of the checkout's."""
    revision = version.commit if version else "HEAD"
    text = opened.repository.read(revision, SourcePin.FILE)
    if text is None:
        return SourcePin()
    name = str(SourcePin.FILE)
    return documents.parse_checked(text.encode(), name, SourcePin, "`perennial pin source` writes it")


def _tried(opened: OpenRegistry, source: SourcePin, version: Version | None) -> str | None:
    """Find a recorded run that trained on these objects and was compared with this champion."""
    champion = ChampionPin()
    if version:
        champion = ChampionPin(version=version.name, commit=version.commit)
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
