"""Copies of checkpoints in S3 or a shared folder, from which a training on another machine resumes.

    <remote>/<run fingerprint>/step-000000577-<digest>/    a checkpoint, steps.csv.gz and, last, manifest.json
    <remote>/finished/<run fingerprint>                    one for each training that has ended

A copy without a manifest is incomplete. The manifest holds the digests of the other files, and the folder's
name ends with the digest of the manifest. Machines that save the same state therefore write the same bytes
under the same names, and machines whose states differ never write to the same folder.
"""

import gzip
import hashlib
import logging
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from perennial.base import documents, files
from perennial.base.documents import JsonFile
from perennial.base.errors import DataError
from perennial.base.storage import Missing, Store, file_below, open_store
from perennial.model.training import checkpoints, training_history
from perennial.model.training.training_history import FINISHED

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
HISTORY = "steps.csv.gz"
NAME = re.compile(r"step-(\d{9,})-([0-9a-f]{16})")
FINGERPRINT = re.compile(r"[0-9a-f]{64}")
KEPT = 2  # the newest and one in reserve
# Keep the copies of a finished training for a while: its run may still fail before its results are recorded.
FINISHED_FOR = timedelta(days=7)
REFUSED = "it is not used"


class CopiedFile(JsonFile):
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


class CopyManifest(JsonFile):
    """The files of a copy."""

    step: int
    files: dict[str, CopiedFile]


class FetchedCheckpoint(NamedTuple):
    """A checkpoint that came from the remote."""

    step: int
    url: str


@dataclass
class RemoteRun:
    """The copies of one training's checkpoints, below `<remote>/<run fingerprint>`."""

    remote: str
    folder: Path  # of the run on this machine
    options: Mapping[str, str] = field(default_factory=dict)  # of a DVC remote, for the store
    _damaged: set[str] = field(default_factory=set)  # found by `fetch`

    @property
    def url(self) -> str:
        """Where the copies are."""
        return self._store.url

    @cached_property
    def _store(self) -> Store:
        return self._opened(self.folder.name)

    def _opened(self, name: str = "") -> Store:
        return open_store(f"{self.remote.rstrip('/')}/{name}", self.options)

    def fetch(self) -> FetchedCheckpoint | None:
        """Fetch the newest complete copy into the run folder if it is newer than every valid checkpoint there.

        A damaged copy is skipped with a warning, and the previous one is tried.
        """
        newest_here = _newest_valid(self.folder)
        for name in reversed(self._complete(self._list())):
            if _step(name) <= newest_here:
                break
            try:
                return self._get(name)
            except DataError as error:
                if isinstance(error, Missing) and name not in self._complete(self._list()):
                    return self.fetch()  # removed meanwhile, so a newer one exists
                log.warning("damaged copy of a checkpoint: %s; trying the one before it", error)
                self._damaged.add(name)
        return None

    def _get(self, name: str) -> FetchedCheckpoint:
        started, where = time.monotonic(), f"{self.url}/{name}"
        content, _ = self._store.get_bytes(f"{name}/{MANIFEST}")
        if _digest(content) != name.rpartition("-")[2]:
            raise DataError(f"{where}/{MANIFEST} was changed: its SHA-256 is not the one in its name")
        manifest = documents.parse_checked(content, f"{where}/{MANIFEST}", CopyManifest, REFUSED)
        target = checkpoints.free_name(self.folder, _step(name))
        with files.new_folder(target) as new:
            for file, facts in manifest.files.items():
                self._store.get(f"{name}/{file}", file_below(new, file), size=facts.bytes, sha256=facts.sha256)
            steps = gzip.decompress((new / HISTORY).read_bytes())
            (new / HISTORY).unlink()
            checkpoints.verified(new)
            # The rows come first: a resuming training drops rows after its step, but cannot restore rows before
            # it.
            files.write_bytes(self.folder / training_history.STEPS_FILE, steps)
        log.info("fetched the checkpoint of step %d in %.2f s", _step(name), time.monotonic() - started)
        return FetchedCheckpoint(_step(name), where)

    def put(self, checkpoint: Path) -> int:
        """Copy a checkpoint, then remove all but the two newest copies; returns the number of bytes sent.

        Nothing is copied if the remote has two newer ones: another machine is ahead with the same training.
        """
        before = self._list()
        complete = self._complete(before)
        description = checkpoints.described(checkpoint)
        if sum(_step(name) > description["step"] for name in complete) >= KEPT:
            log.debug("%s has two newer checkpoints than that of step %d", self.url, description["step"])
            return 0
        small = {
            checkpoints.FILE: (checkpoint / checkpoints.FILE).read_bytes(),
            HISTORY: gzip.compress(training_history.until(self.folder, description["step"]), mtime=0),
        }
        facts = {
            name: {"bytes": len(each), "sha256": hashlib.sha256(each).hexdigest()}
            for name, each in small.items()
        }
        listed = facts | description["files"]
        manifest = files.json_bytes({"step": description["step"], "files": listed})
        name = f"step-{description['step']:09d}-{_digest(manifest)}"
        # Another machine, or an earlier process on this one, may have sent some of the files.
        present = {} if name in self._damaged else before.get(name, {})
        missing = [file for file, facts in listed.items() if present.get(file) != facts["bytes"]]
        for file in missing:
            self._store.put(f"{name}/{file}", small.get(file) or checkpoint / file)
        self._store.put(f"{name}/{MANIFEST}", manifest)
        self._prune(before, keep=sorted({*complete, name}, key=_order)[-KEPT:])
        size: int = sum(listed[file]["bytes"] for file in missing)
        return size + len(manifest)

    def _prune(self, before: Mapping[str, Mapping[str, int]], *, keep: list[str]) -> None:
        """Remove copies but those to keep, and incomplete ones but newer: another machine may be sending it."""
        for name in before.keys() - set(keep):
            if MANIFEST in before[name] or _step(name) < _step(keep[0]):
                # Remove the manifest first: what remains after a kill is then an incomplete copy.
                for file in sorted(before[name], key=lambda file: file != MANIFEST):
                    self._store.delete(f"{name}/{file}")
        self._damaged.clear()

    def clear(self) -> None:
        """Remove all copies."""
        self._store.clear()

    def finish(self) -> None:
        """Mark the training as finished, and remove the copies of trainings that finished a week before it."""
        root, own = self._opened(), f"{FINISHED}/{self.folder.name}"
        root.put(own, (self.folder / FINISHED).read_bytes())
        marks = {entry.key: entry.modified for entry in root.list(f"{FINISHED}/")}
        # Compare times of the store's clock only.
        now = marks.pop(own, None)
        for key, ended in marks.items():
            other = key.removeprefix(f"{FINISHED}/")
            if now and ended and now - ended > FINISHED_FOR and FINGERPRINT.fullmatch(other):
                self._opened(other).clear()
                root.delete(key)

    def stop(self) -> None:
        """Make operations in other threads end soon with an error."""
        self._store.stop()

    def _list(self) -> dict[str, dict[str, int]]:
        """List the files of each copy, complete or not, with their sizes."""
        found: dict[str, dict[str, int]] = {}
        try:
            for entry in self._store.list("step-"):
                name, _, file = entry.key.partition("/")
                if NAME.fullmatch(name):
                    found.setdefault(name, {})[file] = entry.size
        except Missing:  # nothing was written to this folder yet
            return {}
        return found

    def _complete(self, listed: Mapping[str, Iterable[str]]) -> list[str]:
        """The names of the complete copies, oldest first."""
        complete = (name for name, present in listed.items() if MANIFEST in present)
        return sorted((name for name in complete if name not in self._damaged), key=_order)


def _newest_valid(folder: Path) -> int:
    """The step of the newest valid checkpoint on this machine; 0 if there is none."""
    for path in reversed(checkpoints.committed(folder)):
        with suppress(DataError):
            checkpoints.verified(path)
            return checkpoints.step_of(path)
    return 0


def _order(name: str) -> tuple[int, str]:
    return _step(name), name


def _step(name: str) -> int:
    return int(name.split("-")[1])


def _digest(manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest()[:16]
