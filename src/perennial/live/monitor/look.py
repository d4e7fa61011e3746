"""Observe the source, the champion and new data, for `perennial monitor`."""

import hashlib
import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.errors import PerennialError
from perennial.base.parallel import child
from perennial.base.params import advice
from perennial.base.project.pins import ChampionPin, SourcePin
from perennial.data.sources.listing import Listing
from perennial.data.sources.origin import Origin
from perennial.data.sources.pin import copies_folder, listed_source, pin_of
from perennial.data.validation import drift
from perennial.live.monitor import newest
from perennial.live.monitor.newest import Newest
from perennial.live.monitor.rules import ChampionSeen, DriftSeen, New, Score, Seen, SourceSeen
from perennial.live.monitor.traffic import look as look_at_traffic
from perennial.release.registry import revision
from perennial.release.registry.access import OpenRegistry, open_registry
from perennial.release.registry.versions import Version

LOG = "monitor.log"  # of that program, in paths.work
DAY_S = 86_400
MEASURED = TypeAdapter(New)
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
        with listed_source(config) as (listing, origin):
            current = pin_of(listing)
            same = current == before
            source = SourceSeen(state="unchanged" if same else "changed", now=current, trained_on=before)
            seen = replace(seen, source=source)
            if version is None or source.state == "unchanged":
                return replace(seen, tried=_tried(opened, current, version))
            new, problems = _new(config, version, listing, origin)
    except PerennialError as error:
        source = SourceSeen(state="unreadable", trained_on=before, problem=str(error))
        return replace(seen, source=source, problems=[*seen.problems, str(error)])
    return replace(seen, new=new, problems=[*seen.problems, *problems], tried=_tried(opened, current, version))


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


def _new(config: Config, version: Version, listing: Listing, origin: Origin) -> tuple[New, list[str]]:
    """The new data, measured once as long as nothing changes; and why score or drift is missing."""
    folder = copies_folder(config) / "monitor"
    mark = [version.commit, listing.sha256(), config.monitor.max_examples, config.evaluate.confidence_level]
    kept = folder / f"{hashlib.sha256(json.dumps(mark).encode()).hexdigest()}.json"
    if kept.exists():
        return MEASURED.validate_json(kept.read_bytes()), []
    new, problems = _measured(config, version, listing, origin, folder)
    if not problems:
        for old in folder.glob("*.json"):
            old.unlink(missing_ok=True)
        files.write_json(kept, asdict(new))
    return new, problems


def _measured(
    config: Config, version: Version, listing: Listing, origin: Origin, folder: Path
) -> tuple[New, list[str]]:
    """See `_new`; `folder` keeps what the champion was trained on."""
    try:
        known = newest.open_trained_on(config, version.commit, folder)
    except PerennialError as error:
        empty = New(objects=0, examples=0, unreadable=0, per_class={})
        return empty, [f"what {version.name} was trained on is not known: {error}"]
    with newest.scratch_folder(config) as temporary:
        try:
            found = newest.collect(config, listing, origin, known, temporary)
        finally:
            known.close()
        new = New(
            objects=found.objects, examples=len(found.labels), unreadable=found.unreadable,
            per_class=found.per_class,
        )  # fmt: skip
        if not found.labels:
            return new, []
        try:
            new = replace(new, drift=_drift(version, found, temporary))
            return replace(new, score=_score(config, version, found, temporary)), []
        except PerennialError as error:
            return new, [f"{version.name} on new examples: {error}"]


def _drift(version: Version, found: Newest, folder: Path) -> DriftSeen:
    """Distance from the training examples of the champion, as its validation report counts them."""
    report = folder / "validation.json"
    revision.fetch_output(version.commit, revision.paths(version.commit)["validation"], report)
    try:
        before = drift.baseline_of(documents.read_json(report)).statistics
    except (ValueError, LookupError, TypeError) as error:
        raise PerennialError(f"its validation report is damaged or of an earlier format: {error}") from error
    if before is None:
        raise PerennialError("its validation report has no statistics")
    labels = drift.labels(found.per_class, before.per_class, (len(found.labels), before.examples))
    brightness = drift.brightness(found.brightness.tolist(), before.brightness)
    return DriftSeen(labels=labels.distance, label=str(labels.where), brightness=brightness.distance)


def _score(config: Config, version: Version, found: Newest, folder: Path) -> Score:
    """The predictions of the champion's export."""
    export, examples = folder / "export", folder / "examples.json"
    revision.fetch_output(version.commit, revision.paths(version.commit)["export"], export)
    files.write_json(examples, {"file": str(found.file), "labels": found.labels, "spans": found.spans})
    job: dict[str, Any] = {"export": str(export), "examples": str(examples)}
    counts = child.call(newest.PROGRAM, job, config.paths.work / LOG)
    scored = len(found.labels) - counts["refused"]
    if not scored:
        raise PerennialError(f"the model takes none of {len(found.labels)} images: {counts['reason']}")
    accuracy = counts["correct"] / scored
    low, high = advice.interval(accuracy, scored, config.evaluate.confidence_level)
    refused, new = counts["refused"], counts["unknown"]
    what = "exact match" if config.dataset.task == "multilabel" else "accuracy"
    return Score(
        accuracy=accuracy, low=low, high=high, examples=scored, refused=refused, unknown_classes=new, what=what
    )
