"""The trainings that git records in the dvc.lock of any commit, and the images that they saw."""

import hashlib
import logging
import tempfile
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter

from perennial.base import files
from perennial.base.choices import SPLITS, Split
from perennial.base.dvc import dvc_lock
from perennial.base.errors import DataError, PerennialError
from perennial.base.project.git import Repository
from perennial.data.images import BadImage, decode, statistics
from perennial.data.images.accept import accepted
from perennial.data.validation import image_index
from perennial.data.validation.image_index import ImageIndex
from perennial.data.validation.inspection import SMALL_PIXELS, TINY_PIXELS
from perennial.release.audit.needs import FOLDER
from perennial.release.audit.sides import DvcObjects
from perennial.release.registry.versions import Registry

log = logging.getLogger(__name__)
CACHE = "locks.json"
MISSING = "missing.json"  # reasons by records
LISTED = 20  # maximum images listed per kind and version; all are counted
Kind = Literal["file", "pixels", "near"]


class RecordedDigests(BaseModel):
    """MD5 digests that a dvc.lock records of a training."""

    model_config = ConfigDict(frozen=True)

    records: str  # folder of records that it read
    model: str
    index: str | None = None  # folder that validate wrote of the same records


@dataclass(frozen=True, kw_only=True)
class PastTraining:
    """A training, at the commit that registers its version or that recorded it first."""

    recorded: RecordedDigests
    commit: str
    date: int  # seconds since 1970
    version: str | None = None  # such as v0.0.3
    champion: bool = False


def trainings(repository: Repository, registry: Registry, cache: Path) -> list[PastTraining]:
    """List versions and other trainings in git's history, newest first; `cache`: folder of what was read."""
    rows = repository.run("log", "--all", "HEAD", "--format=%H %ct").splitlines()
    commits = {commit: int(date) for commit, date in (row.split() for row in rows)}
    locks = repository.blobs(dvc_lock.FILE, commits)
    known = _recorded(repository, set(locks.values()), cache / CACHE)
    recorded = {commit: each for commit, blob in locks.items() if (each := known[blob]) is not None}
    found = [
        PastTraining(
            recorded=recorded[each.commit],
            commit=each.commit,
            date=each.date,
            version=each.name,
            champion=each is registry.champion,
        )
        for each in registry.versions
        if each.commit in recorded
    ]
    listed = {each.recorded for each in found}
    for commit in sorted(recorded, key=lambda commit: (commits[commit], commit)):
        if recorded[commit] not in listed:
            listed.add(recorded[commit])
            found.append(PastTraining(recorded=recorded[commit], commit=commit, date=commits[commit]))
    return sorted(found, key=lambda each: (-each.date, each.commit))


def _recorded(repository: Repository, blobs: Set[str], cache: Path) -> dict[str, RecordedDigests | None]:
    """The training in each dvc.lock, if any; kept in a file, because parsing YAML takes time."""
    form = TypeAdapter(dict[str, RecordedDigests | None])
    try:
        known = form.validate_json(cache.read_bytes())
    except (OSError, ValueError):
        log.info("reading the history of %s", dvc_lock.FILE)
        known = {}
    if new := blobs - known.keys():
        known |= {blob: _read(repository.blob(blob) or b"") for blob in new}
        files.write_bytes(cache, form.dump_json(known))
    return known


def _read(content: bytes) -> RecordedDigests | None:
    stages, index = dvc_lock.entries(content), None
    try:
        train, path = stages["train"], next(iter(stages["convert"].outs))
        records, model = train.deps[path], next(iter(train.outs.values()))
    except (KeyError, StopIteration):
        return None
    validate = stages.get("validate")
    if validate and validate.deps.get(path) == records:  # its other outputs are files
        index = next((md5 for md5 in validate.outs.values() if md5.endswith(FOLDER)), None)
    return RecordedDigests(records=records, model=model, index=index)


class Indices:
    """The index of each version's records, fetched on first use; those that are missing are remembered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._missing = TypeAdapter(dict[str, str]).validate_json((folder / MISSING).read_bytes())
        except (OSError, ValueError):
            self._missing = {}

    def of(self, recorded: RecordedDigests, *, ask: bool) -> ImageIndex:
        """Get the index of the images that a training read; `ask`: look again for missing ones."""
        file = self._folder / f"{recorded.records.removesuffix(FOLDER)}.npy"
        try:
            return image_index.read(file)
        except DataError:
            file.unlink(missing_ok=True)
        if not ask and recorded.records in self._missing:
            raise DataError(self._missing[recorded.records])
        try:
            self._make(recorded, file)
        except DataError as error:  # lost or damaged; a remote that cannot be reached is another error
            self._missing[recorded.records] = str(error)
            files.write_json(self._folder / MISSING, self._missing)
            raise
        return image_index.read(file)

    def _make(self, recorded: RecordedDigests, file: Path) -> None:
        own = recorded.index and self._objects.members(recorded.index, "its folder of indices")
        if not own or image_index.FILE not in own:
            raise DataError("it has no index of its images")
        files.make_folder(self._folder)
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            copy = Path(scratch, image_index.FILE)
            self._objects.fetch(own[image_index.FILE], copy, "its index of images")
            files.write_bytes(file, image_index.content(image_index.read(copy)))

    @cached_property
    def _objects(self) -> DvcObjects:
        return DvcObjects()


@dataclass(frozen=True, kw_only=True)
class Query:
    """An image to look for."""

    sha256: Sequence[bytes]  # of its file, and of the file that a record would hold of it
    pixels: NDArray[np.uint64] | None = None  # [2], digest of size and pixels
    hash: np.uint64 | None = None  # perceptual; None for tiny images, and where it is not known


@dataclass(frozen=True, kw_only=True)
class Match:
    """A matching image of a version's records: the same file, equal pixels, or a look-alike."""

    kind: Kind
    split: Split
    record: int  # number in its split, as `perennial show N --split SPLIT` counts
    digest: str  # SHA-256 of the image file in the record
    bits: int  # differing bits of the perceptual hashes


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """The images that one training saw."""

    training: PastTraining
    same: Counter[Split]  # images with the same file or pixels
    near: Counter[Split]  # images that look alike
    matches: Sequence[Match]


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The trainings that saw an image, and those for which this is unknown, with the reason."""

    trainings: int
    sightings: Sequence[Sighting]
    unknown: Sequence[tuple[PastTraining, str]]


def of_file(file: Path) -> Query:
    """The query for an image file."""
    content = file.read_bytes()
    image = accepted(content, file.name)
    if isinstance(image, BadImage):
        raise DataError(f"{file}: {image.reason}")
    white = accepted(content, file.name, "white")
    stored = [each.encoded for each in (image, white) if not isinstance(each, BadImage)]
    digests = dict.fromkeys(hashlib.sha256(each).digest() for each in (content, *stored))
    opened = decode.decoded(image.encoded)
    # Compute them as the validate stage does.
    if isinstance(opened, PIL.Image.Image) and opened.width * opened.height >= SMALL_PIXELS:
        _, found = statistics.of_image(opened)
    else:
        _, found = statistics.of_batch(decode.array(opened)[np.newaxis])
    tiny = image.height * image.width < TINY_PIXELS
    return Query(sha256=list(digests), pixels=found.digests[0], hash=None if tiny else found.hashes[0])


def search(
    query: Query, trainings: Sequence[PastTraining], indices: Indices, *, bits: int | None, ask: bool = False
) -> SearchResult:
    """Look for an image in what each training read, up to `bits` of distance; `ask`: again for missing data."""
    found: list[tuple[PastTraining, ImageIndex]] = []
    unknown = []
    for training in trainings:
        try:
            found.append((training, indices.of(training.recorded, ask=ask or training.version is not None)))
        except PerennialError as error:
            unknown.append((training, str(error)))
    if query.pixels is None:
        query = _completed(query, [index for _, index in found])
    sightings = [each for training, index in found if (each := _sighting(query, training, index, bits))]
    return SearchResult(trainings=len(trainings), sightings=sightings, unknown=unknown)


def _completed(query: Query, indices: Sequence[ImageIndex]) -> Query:
    """Complete a query for a digest with the fingerprints of the records that have this digest."""
    for index in indices:
        for entry in index[_same_file(query, index)]:
            return replace(query, pixels=entry["pixels"], hash=None if entry["tiny"] else entry["hash"])
    return query


def _sighting(query: Query, training: PastTraining, index: ImageIndex, bits: int | None) -> Sighting | None:
    masks: dict[Kind, NDArray[np.bool_]] = {"file": _same_file(query, index)}
    if query.pixels is not None:
        masks["pixels"] = (index["pixels"] == query.pixels).all(axis=1) & ~masks["file"]
    distances = np.zeros(len(index), np.uint8)
    if query.hash is not None and bits is not None:
        distances = np.bitwise_count(index["hash"] ^ query.hash)
        alike = (distances <= bits) & (index["tiny"] == 0)
        masks["near"] = alike & ~masks["file"] & ~masks["pixels"]
    counts: dict[Kind, Counter[Split]] = {
        kind: Counter(SPLITS[split] for split in index["split"][mask].tolist()) for kind, mask in masks.items()
    }
    if not any(counts.values()):
        return None
    matches = [
        Match(
            kind=kind,
            split=SPLITS[index["split"][record]],
            record=record - int(np.argmax(index["split"] == index["split"][record])),
            digest=index["sha256"][record].tobytes().hex(),
            bits=int(distances[record]),
        )
        for kind, mask in masks.items()
        for record in sorted(np.flatnonzero(mask).tolist(), key=lambda record: (distances[record], record))[
            :LISTED
        ]
    ]
    same = counts["file"] + counts.get("pixels", Counter())
    return Sighting(training=training, same=same, near=counts.get("near", Counter()), matches=matches)


def _same_file(query: Query, index: ImageIndex) -> NDArray[np.bool_]:
    found = np.zeros(len(index), np.bool_)
    for digest in query.sha256:
        # Comparing first bytes leaves few candidates.
        few = np.flatnonzero(index["sha256"][:, 0] == digest[0])
        found[few[(index["sha256"][few] == np.frombuffer(digest, np.uint8)).all(axis=1)]] = True
    return found
