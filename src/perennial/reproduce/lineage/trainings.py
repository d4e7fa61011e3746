"""The trainings that git records, from the dvc.lock of each commit of all branches and tags."""

import json
import logging
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from perennial.base import files
from perennial.base.dvc import dvc_lock
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import DataError
from perennial.base.project.git import Repository
from perennial.data.validation import image_index
from perennial.data.validation.image_index import ImageIndex
from perennial.release.audit.needs import FOLDER
from perennial.release.audit.sides import DvcObjects
from perennial.release.registry.versions import Registry

log = logging.getLogger(__name__)
CACHE = "locks.json"
MISSING = "missing.json"  # reasons by records


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
    facts = _Facts(repository, cache / CACHE)
    recorded = {commit: each for commit, blob in locks.items() if (each := facts.of(blob)) is not None}
    facts.save()
    champion = registry.champion
    found = [
        PastTraining(
            recorded=recorded[each.commit],
            commit=each.commit,
            date=each.date,
            version=each.name,
            champion=champion is not None and each.name == champion.name,
        )
        for each in registry.versions
        if each.commit in recorded
    ]
    known = {each.recorded for each in found}
    for commit in sorted(recorded, key=lambda commit: (commits[commit], commit)):
        if recorded[commit] not in known:
            known.add(recorded[commit])
            found.append(PastTraining(recorded=recorded[commit], commit=commit, date=commits[commit]))
    return sorted(found, key=lambda each: (-each.date, each.commit))


class _Facts:
    """The training in each dvc.lock; cached in a file, because parsing YAML takes time."""

    def __init__(self, repository: Repository, file: Path) -> None:
        self._repository, self._file = repository, file
        self._known: dict[str, RecordedDigests | None] = {}
        self._new = False
        try:
            self._known = TypeAdapter(dict[str, RecordedDigests | None]).validate_json(file.read_bytes())
        except (OSError, ValueError):
            log.info("reading the history of %s", dvc_lock.FILE)

    def of(self, blob: str) -> RecordedDigests | None:
        """The training in a dvc.lock; None if it records none."""
        if blob not in self._known:
            self._known[blob] = _read(self._repository.blob(blob) or b"")
            self._new = True
        return self._known[blob]

    def save(self) -> None:
        """Keep what was read."""
        if self._new:
            known = {blob: each and each.model_dump() for blob, each in self._known.items()}
            files.write_bytes(self._file, json.dumps(known).encode())


def _read(content: bytes) -> RecordedDigests | None:
    stages = dvc_lock.entries(content)
    try:
        train, path = stages["train"], next(iter(stages["convert"].outs))
        records, model = train.deps[path], next(iter(train.outs.values()))
    except (KeyError, StopIteration):
        return None
    return RecordedDigests(records=records, model=model, index=_index(stages.get("validate"), path, records))


def _index(validate: LockedStage | None, path: str, records: str) -> str | None:
    """The folder that validate wrote of these records: its other outputs are files."""
    if validate is None or validate.deps.get(path) != records:
        return None
    return next((md5 for md5 in validate.outs.values() if md5.endswith(FOLDER)), None)


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
        if recorded.index is None:
            raise DataError("it has no index of its images")
        files.make_folder(self._folder)
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            copy = Path(scratch, image_index.FILE)
            own = self._objects.members(recorded.index, "its folder of indices")
            if image_index.FILE not in own:
                raise DataError("it has no index of its images")
            self._objects.fetch(own[image_index.FILE], copy, "its index of images")
            files.write_bytes(file, image_index.content(image_index.read(copy)))

    @cached_property
    def _objects(self) -> DvcObjects:
        return DvcObjects()
