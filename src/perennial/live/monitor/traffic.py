"""Drift in the traffic that a server has kept: read in order, cut into windows, compared with the reference.

What was found is kept in a file, with the objects whose records were used, so that the next look reads only
others: also those that a server wrote late, or whose clock is behind. Windows follow the times of the answers.
A window has images that were drawn at random, each once, answered by the champion's export.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.config.paths import FIXED
from perennial.base.documents import JsonFile
from perennial.base.errors import DataError, PerennialError, redacted
from perennial.base.parallel import child
from perennial.base.storage import Missing, Store
from perennial.data.sources.pin import copies_folder
from perennial.live.capture import place
from perennial.live.capture.place import KeptImage
from perennial.live.monitor.windows import ENOUGH, OF_LAST, Content, Window, alarm_since, compare
from perennial.model.export import reference as references
from perennial.model.export.reference import Reference
from perennial.model.export_layout import REFERENCE
from perennial.release.registry import revision
from perennial.release.registry.versions import Version

PROGRAM = "perennial.live.monitor.export_program"
LOG = "traffic.log"  # of that program, in paths.work
AT_ONCE = 6  # windows of one look, the newest: twice as many as an alarm needs
REMEMBERED = 30  # windows
LATE = timedelta(days=1)  # that a server may write after the newest record, or be behind
DIGITS = 16  # of a digest in a name


@dataclass(frozen=True, kw_only=True)
class TrafficSeen:
    """Windows of the champion's traffic, the newest last, and whether they are an alarm."""

    place: str
    windows: list[Window]
    waiting: int  # images after the last window
    size: int  # images of a window
    alarm: str | None  # end of the window that raised it
    key: str | None  # of the alarm: the same one as long as it lasts
    words: list[str] = field(default_factory=list)  # what a person should know of it
    missing: str | None = None  # why traffic cannot be compared
    problem: str | None = None  # why it could not be read this time
    damaged: str | None = None  # which records were left out


class State(JsonFile):
    """What earlier looks found."""

    windows: Annotated[list[Window], BeforeValidator(TypeAdapter(list[Window]).validate_python)]
    since: str = ""  # day; objects of earlier ones are not looked at again
    used: dict[str, int] = Field(default_factory=dict)  # records that windows have used of each object, or ALL


ALL = -1


class Record(NamedTuple):
    """A record and its place."""

    key: str
    number: int  # among the records of its object that fit, by time
    image: KeptImage


def look(config: Config, version: Version | None) -> TrafficSeen | None:
    """Compare the traffic of a version with its reference; None without monitor.traffic."""
    if config.monitor.traffic is None:
        return None
    found = _look(config, config.monitor.traffic, version)
    return replace(found, words=_in_words(found))


def _in_words(seen: TrafficSeen) -> list[str]:
    if said := seen.problem or seen.missing:
        return [said]
    waiting = f"{seen.waiting} of the {seen.size} images of the next window are in {seen.place}"
    words = [*(seen.windows[-1].in_words() if seen.windows else ["no window yet"]), waiting]
    words += [seen.damaged] if seen.damaged else []
    if seen.alarm:
        words.append(
            f"ALARM since {seen.alarm[:19]}: {ENOUGH} of {OF_LAST} windows differ from the validation images; "
            f"the same data would give the same model, so label some images: perennial label {seen.place}"
        )
    return words


def _look(config: Config, url: str, version: Version | None) -> TrafficSeen:
    size = config.monitor.traffic_window
    empty = TrafficSeen(place=redacted(url), windows=[], waiting=0, size=size, alarm=None, key=None)
    if version is None:
        return replace(empty, missing="no champion yet")
    folder = copies_folder(config) / "monitor" / "traffic"
    try:
        export = _reference(version, folder)
    except PerennialError as error:
        return replace(empty, problem=f"what the traffic of {version.name} is compared with: {error}")
    try:
        mark, reference = references.mark(export), references.load(export)
    except DataError as error:
        return replace(empty, missing=str(error).replace(str(export), f"the export of {version.name}"))
    assert mark is not None
    store = None
    try:
        store = place.open_place(url)
        return _Place(config, version, store, mark, reference, folder).seen(empty)
    except (PerennialError, OSError) as error:
        return replace(empty, problem=f"traffic in {empty.place}: {error}")
    finally:
        if store is not None:
            store.stop()


def _reference(version: Version, folder: Path) -> Path:
    """A folder with the reference of a version's export, which is fetched once."""
    found, path = folder / version.commit, FIXED["export"]
    if (found / REFERENCE).exists():
        return found
    files.make_folder((found / REFERENCE).parent)
    try:
        revision.fetch_output(version.commit, f"{path}/{REFERENCE}", found / REFERENCE)
    except PerennialError:  # also if the export has no such file
        with tempfile.TemporaryDirectory(dir=found) as whole:
            export = Path(whole) / "export"
            revision.fetch_output(version.commit, path, export)
            if (export / REFERENCE).exists():
                raise
        files.write_json(found / REFERENCE, {"missing": references.OLD})
    return found


class _Place:
    """A place, and what is compared with it."""

    def __init__(
        self, config: Config, version: Version, store: Store, mark: str, reference: Reference, folder: Path
    ) -> None:
        self._config, self._version, self._store = config, version, store
        self._mark, self._reference, self._size = mark, reference, config.monitor.traffic_window
        named = json.dumps([mark, store.url, self._size])
        self._damaged = place.Damaged()
        self._file = folder / f"{hashlib.sha256(named.encode()).hexdigest()[:DIGITS]}.json"

    def seen(self, empty: TrafficSeen) -> TrafficSeen:
        """Add new windows to the known ones."""
        try:
            state = documents.read_checked(self._file, State, "it is computed again")
        except DataError:
            state = State(windows=[])
        windows, keys = state.windows, place.record_keys(self._store, state.since)
        chunks, rest, waiting = self._cut(self._newer(keys, state.used))
        if chunks:
            windows = [*windows, *self._compared(chunks)][-REMEMBERED:]
            used = dict.fromkeys(keys, ALL) | {each.key: each.number for each in reversed(rest)}
            last = min(date.fromisoformat(chunks[-1][-1].image.day), datetime.now(UTC).date())
            first = (last - LATE).isoformat()
            known = State(
                windows=windows, since=first, used={key: number for key, number in used.items() if key >= first}
            )
            files.make_folder(self._file.parent)
            files.write_json(self._file, known.model_dump(mode="json"))
        since = alarm_since(windows)
        return replace(
            empty, windows=windows, waiting=waiting, alarm=since, key=since and f"{self._mark}/{since}",
            damaged=str(self._damaged) if self._damaged.count else None,
        )  # fmt: skip

    def _newer(self, keys: Sequence[str], used: Mapping[str, int]) -> list[Record]:
        """The records that no window has used, in the order of the answers; of many, the newest objects'."""
        found = list[Record]()
        for key in reversed(keys):
            first = used.get(key, 0)
            if first == ALL:
                continue
            try:
                records = place.records(self._store, key, self._damaged)
            except Missing:  # removed meanwhile
                continue
            drawn = [each for each in records if each.reason == "random" and each.reference == self._mark]
            fitting = sorted((each for each in drawn if each.top), key=lambda image: image.time)
            found += [Record(key, number, image) for number, image in enumerate(fitting) if number >= first]
            if len(found) >= AT_ONCE * self._size:
                break
        return sorted(found, key=lambda each: (each.image.time, each.key, each.number))

    def _thinned(self, records: Sequence[Record]) -> Iterator[tuple[int, Record]]:
        """As many of those that were kept with a larger share as if all had the smallest one, and where."""
        least = min((each.image.probability for each in records), default=1.0)
        for at, each in enumerate(records):
            drawn = hashlib.sha256(f"{each.key}:{each.number}".encode()).digest()
            if int.from_bytes(drawn[:6]) < least / each.image.probability * 2**48:
                yield at, each

    def _cut(self, records: Sequence[Record]) -> tuple[list[list[Record]], Sequence[Record], int]:
        """Cut records into whole windows of different images, and return the rest, and how many wait in it."""
        windows, names, end = list[list[Record]](), set[str](), 0
        open_: list[Record] = []
        for number, each in self._thinned(records):
            if each.image.sha256 in names:
                continue
            names.add(each.image.sha256)
            open_.append(each)
            if len(open_) == self._size:
                windows.append(open_)
                open_, names, end = [], set(), number + 1
        return windows[-AT_ONCE:], records[end:], len(open_)

    def _compared(self, windows: Sequence[Sequence[Record]]) -> list[Window]:
        """Compare windows with the reference; images are fetched and measured together, in one process."""
        work = self._config.paths.work
        work.mkdir(parents=True, exist_ok=True)
        # `forget` removes what a killed monitor left.
        with tempfile.TemporaryDirectory(dir=work, prefix="monitor-") as folder:
            measured = self._measured([each for window in windows for each in window], Path(folder))
        found = []
        for window in windows:
            known = [each for each in window if each.image.features or each.image.sha256 in measured]
            values = [
                (each.image.values(), each.image.brightness or 0.0)
                if each.image.features
                else measured[each.image.sha256]
                for each in known
            ]
            if len(known) * 2 < self._size:  # the others were removed meanwhile
                continue
            features, brightness = zip(*values, strict=True)
            found.append(
                compare(
                    Content(
                        start=window[0].image.time,
                        end=window[-1].image.time,
                        features=np.stack(features),
                        brightness=np.array(brightness, np.float32),
                        classes=[each.image.top[0][0] for each in known],
                    ),
                    self._reference,
                )
            )
        return found

    def _measured(self, records: Sequence[Record], folder: Path) -> dict[str, tuple[Any, float]]:
        """Features and brightness of images that the place has, by SHA-256."""
        wanted = {each.image.sha256 for each in records if not each.image.features}
        if not wanted:
            return {}
        there = {name: key for name, key in place.images(self._store).items() if name in wanted}
        fetched = list[str]()
        for name, key in there.items():
            try:
                self._store.get(key, folder / name, sha256=name)
            except Missing:
                continue
            fetched.append(name)
        if not fetched:
            return {}
        export, to = folder / "export", folder / "measured.npz"
        revision.fetch_output(self._version.commit, FIXED["export"], export)
        job = {"export": str(export), "images": [str(folder / name) for name in fetched], "to": str(to)}
        refused = {Path(file).name for file in child.call(PROGRAM, job, self._config.paths.work / LOG)}
        with np.load(to) as values:
            taken = [name for name in fetched if name not in refused]
            return dict(zip(taken, zip(values["features"], values["brightness"], strict=True), strict=True))
