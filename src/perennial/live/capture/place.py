"""Where a server keeps images: a folder or bucket that has a folder for each day (UTC).

    2026-11-27/images/<sha256>.jpg or .png         as the model got it, without metadata
    2026-11-27/records/<time>-<random>.jsonl       a line for each time that an image was kept
    2026-11-27/records/<time>-<random>-n<N>.jsonl  the same of N images of which only statistics are kept

Whole days are removed when they are old. Other files in the place are never touched.
"""

import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from perennial.base import files
from perennial.base.choices import is_bucket
from perennial.base.errors import ConfigError, redacted
from perennial.base.project.git import keep_out_of_git
from perennial.base.project.pins import Digest
from perennial.base.storage import Entry, Missing, Store, open_store, together
from perennial.data.images import jpeg
from perennial.live.capture.same_image import Found, Wanted
from perennial.model.export import reference

KEY = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)/"
    r"(images/(?P<sha256>[0-9a-f]{64})\.(jpg|png)|records/[\w-]+?(-n(?P<statistics>\d+))?\.jsonl)"
)
IN_PLACE = re.compile(r"\d{4}-\d\d-\d\d$|\.")  # names in a folder of ours
SHA256 = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
PLACES = "places.json"  # in the work folder
TOP = 5  # classes of a record
LINE_BYTES = 1 << 16  # of a record
LISTED = 60  # days, one by one
log = logging.getLogger(__name__)


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _features(text: str) -> str:
    if text and len(reference.unpacked(text)) != 1:
        raise ValueError("expected the features of one image")
    return text


Share = Annotated[float, Field(ge=0, le=1)]
# The most probable classes, at most TOP, with their probabilities.
Top = Annotated[tuple[tuple[str, Share], ...], Field(max_length=TOP)]
Labels = tuple[str, ...]
# ISO 8601, UTC, with milliseconds: as text in the order of time.
Time = Annotated[str, Field(pattern=r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$"), AfterValidator(_time)]
# Why an image was kept: drawn from all, or from those in which the candidate in the shadow disagreed.
Reason = Literal["random", "disagreement"]


@dataclass(frozen=True, kw_only=True)
class KeptImage:
    """A line of the records: an image that was kept, and what the model said of it."""

    __pydantic_config__: ClassVar = ConfigDict(strict=True, allow_inf_nan=False)

    time: Time
    model: str
    version: str
    sha256: Digest  # of the kept file, or of the one that is not kept
    top: Top
    reason: Reason
    probability: Annotated[float, Field(ge=1e-9, le=1)]  # with which an image was chosen for this reason
    candidate: str | None = None  # the version in the shadow, if it answered
    candidate_top: Top = ()
    # Of a model that gives several labels: all of them; the one nearest to its threshold, with the distance in
    # log odds; and all that the candidate gave.
    labels: Labels | None = None
    nearest: tuple[str, Annotated[float, Field(ge=0)]] | None = None
    candidate_labels: Labels | None = None
    reference: str = ""  # mark of what the statistics of this version compare with
    # Statistics, kept instead of the image: random features, base64, and mean brightness, 0..255.
    features: Annotated[str, AfterValidator(_features)] = ""
    brightness: Annotated[float, Field(ge=0, le=255)] | None = None

    @property
    def day(self) -> str:
        """The name of its folder."""
        return self.time[:10]

    def values(self) -> NDArray[np.float32]:
        """The features as numbers; empty without statistics."""
        return reference.unpacked(self.features).ravel()


RECORD = TypeAdapter(KeptImage)


@dataclass
class Damaged:
    """Lines that are no records, which are counted and left out."""

    count: int = 0
    first: str = ""  # where it is, and what is wrong with it

    def __str__(self) -> str:
        return f"{self.count} damaged records are left out; the first: {self.first}"


def open_place(url: str) -> Store:
    """Open a folder, which is made, or the store at a URL."""
    store = open_store(url)
    if not is_bucket(url):
        folder = Path(url)
        try:
            files.make_folder(folder)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be made: {error.strerror or error}; name another") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"{folder} cannot be written by this user; name another place")
        keep_out_of_git(folder, ours=all(IN_PLACE.match(each.name) for each in folder.iterdir()))
    return store


def note_place(work: Path, url: str) -> None:
    """Note a place in the work folder, so that `forget` searches it; not an address with a secret."""
    place = url if is_bucket(url) else str(Path(url).absolute())
    if redacted(place) != place:
        return
    files.make_folder(work)
    with files.locked(work):  # other servers start, too
        known = noted_places(work)
        if place not in known:
            files.write_json(work / PLACES, [*known, place])


def noted_places(work: Path) -> list[str]:
    """The places that were used in this checkout."""
    try:
        return TypeAdapter(list[str]).validate_json((work / PLACES).read_bytes())
    except (OSError, ValueError):
        return []


def today() -> str:
    """The name of the day's folder."""
    return datetime.now(UTC).date().isoformat()


def put_image(store: Store, day: str, encoded: bytes) -> str:
    """Write an image without metadata, and return its SHA-256; the same image takes its space once a day."""
    sha256 = hashlib.sha256(encoded).hexdigest()
    ending = "jpg" if encoded.startswith(jpeg.START) else "png"
    store.put(f"{day}/images/{sha256}.{ending}", encoded)
    return sha256


def put_records(store: Store, day: str, name: str, records: Iterable[KeptImage]) -> None:
    """Write the records of a day as an object of their own."""
    lines = (json.dumps(_line(each), ensure_ascii=False) + "\n" for each in records)
    store.put(f"{day}/records/{name}.jsonl", "".join(lines).encode())


def usage(store: Store, day: str) -> tuple[int, int]:
    """Count the bytes of all days, and the images of one, also those of which only statistics are kept."""
    size = images = 0
    for entry, found in _ours(store):
        size += entry.size
        if found["day"] == day:
            images += 1 if found["sha256"] else int(found["statistics"] or 0)
    return size, images


def statistics(store: Store) -> int:
    """Count the images of which only statistics were kept."""
    return sum(int(found["statistics"] or 0) for _, found in _ours(store))


def read(store: Store) -> Iterator[KeptImage]:
    """Yield all records, the oldest objects first; a warning counts damaged ones."""
    damaged = Damaged()
    for entry, found in _ours(store):
        if found["sha256"] is None:
            yield from records(store, entry.key, damaged)
    if damaged.count:
        log.warning("%s", damaged)


def record_keys(store: Store, since: str = "") -> list[str]:
    """The objects with records, by name; with `since`, only those of that day until tomorrow."""
    days = [""]
    if since:
        first, last = date.fromisoformat(since[:10]), datetime.now(UTC).date()
        count = (last - first).days + 2
        if count <= LISTED:  # else one clock is far behind
            days = [f"{first + timedelta(number)}/records/" for number in range(count)]
    listed = (_ours(store, day) for day in days)
    return [entry.key for entry, found in chain(*listed) if not found["sha256"] and entry.key >= since]


def images(store: Store) -> dict[str, str]:
    """The keys of all images, by SHA-256."""
    return {found["sha256"]: entry.key for entry, found in _ours(store) if found["sha256"]}


def remove_before(store: Store, days: int) -> int:
    """Remove the folders of days that ended more than `days` days ago; returns the number of objects."""
    first = (datetime.now(UTC).date() - timedelta(days)).isoformat()
    old = [entry.key for entry, found in _ours(store) if found["day"] < first]
    for key in old:
        store.delete(key)
    return len(old)


def remove_images(store: Store, wanted: Wanted) -> Counter[Found]:
    """Remove the wanted images' files, counted each day; records first, so that a new try finds the rest."""
    objects = list(_ours(store))
    kept = {entry.key: (found["day"], found["sha256"]) for entry, found in objects if found["sha256"]}
    for key, (_, sha256) in kept.items():
        if wanted.lacks_pixels(sha256) and (content := _content(store, key)[1]):
            wanted.add(wanted.digests[sha256], content)
    images, gone = list[str](), dict[tuple[str, str], Found]()  # by day and SHA-256
    for key, content in together(store, partial(_content, store), kept):
        if content is not None and (found := wanted.find(content)):
            images.append(key)
            gone[kept[key]] = found
    changed = list[str]()
    for entry, match in objects:
        if match["sha256"] or not (there := _without(store, entry, wanted)):
            continue
        changed.append(entry.key)
        for sha256 in there:
            gone.setdefault((match["day"], sha256), Found(image=wanted.digests[sha256], how="file"))
    for key in images:
        store.delete(key)
    for key in (*images, *changed):  # last: a right that is missing ends it
        store.purge(key)
    return Counter(gone.values())


def _content(store: Store, key: str) -> tuple[str, bytes | None]:
    """The content of an object; None if another process has removed it."""
    try:
        return key, store.get_bytes(key)[0]
    except Missing:
        return key, None


def _without(store: Store, entry: Entry, wanted: Wanted) -> set[str]:
    """Remove the records of wanted images from an object, also damaged ones; returns the images' digests."""
    lines = (_content(store, entry.key)[1] or b"").splitlines(keepends=True)
    gone = {sha256 for line in lines for sha256 in _wanted_in(line, wanted)}
    others = [line for line in lines if not _wanted_in(line, wanted)]
    if not others:
        store.delete(entry.key)
    elif gone:
        store.put(entry.key, b"".join(others))
    return gone


def _wanted_in(line: bytes, wanted: Wanted) -> set[str]:
    return {found.decode() for found in SHA256.findall(line) if found.decode() in wanted.digests}


def _ours(store: Store, prefix: str = "") -> Iterator[tuple[Entry, "re.Match[str]"]]:
    """The objects that servers have written, listed before any is changed."""
    with suppress(Missing):  # a folder that is made with the first image
        yield from [(entry, found) for entry in store.list(prefix) if (found := KEY.fullmatch(entry.key))]


def records(store: Store, key: str, damaged: Damaged) -> list[KeptImage]:
    """The records in an object; those that are none are added to `damaged`."""
    content, _ = store.get_bytes(key)
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            found.append(record(line))
        except ValueError as error:
            damaged.count += 1
            damaged.first = damaged.first or f"{redacted(store.url)}/{key} line {number}: {error}"
    return found


def record(line: bytes) -> KeptImage:
    """Parse and check a line; nothing in a record that this returns can name another file."""
    if len(line) > LINE_BYTES:
        raise ValueError(f"it has {len(line):,} bytes, expected at most {LINE_BYTES:,}")
    try:
        found = RECORD.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field, got = ".".join(map(str, first["loc"])), f"{first['input']!r:.60}"
        raise ValueError(f"{field}: {first['msg']}, got {got}" if field else first["msg"]) from error
    if bool(found.features) != (found.brightness is not None):
        raise ValueError("it has only one of features and brightness")
    return found


def _line(record: KeptImage) -> dict[str, Any]:
    """A record without what it does not have."""
    return {name: value for name, value in asdict(record).items() if value not in (None, "")}
