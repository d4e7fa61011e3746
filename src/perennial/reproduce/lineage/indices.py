"""Local copies of the image indices that validate wrote for earlier versions.

A version that is older than these indices gets one from its records, once.
"""

import logging
import tempfile
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter

from perennial.base import files
from perennial.base.config.data import ComputeConfig
from perennial.base.errors import DataError
from perennial.data.validation import image_index, integrity
from perennial.data.validation.image_index import ImageIndex
from perennial.release.audit.dvc_objects import DvcObjects
from perennial.release.audit.needs import FOLDER
from perennial.reproduce.lineage.trainings import RecordedDigests

MISSING = "missing.json"  # reasons by records
log = logging.getLogger(__name__)


class Indices:
    """The index of each version's records, fetched on first use; those that are missing are remembered."""

    def __init__(self, folder: Path, compute: ComputeConfig) -> None:
        self._folder, self._compute = folder, compute
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
        files.make_folder(self._folder)
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            found = self._written(recorded.index, Path(scratch)) if recorded.index else None
            if found is None:
                found = self._from_records(recorded.records, Path(scratch, "records"))
            files.write_bytes(file, image_index.content(found))

    @cached_property
    def _objects(self) -> DvcObjects:
        return DvcObjects()

    def _written(self, digest: str, scratch: Path) -> ImageIndex | None:
        """Get the index that validate wrote; None if that version wrote none, or no copy exists."""
        file = scratch / image_index.FILE
        try:
            own = self._objects.members(digest, "its folder of indices")
            self._objects.fetch(own[image_index.FILE], file, "its index of images")
        except (DataError, KeyError):
            return None
        return image_index.read(file)

    def _from_records(self, digest: str, folder: Path) -> ImageIndex:
        members = self._objects.members(digest, "its folder of records")
        log.info("reading the records %s once, to index their images", digest[:12])
        for name, md5 in members.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            self._objects.fetch(md5, file, f"its {name}")
        found = integrity.check(folder, fingerprints=True, where=self._compute)
        if found.problems:
            raise DataError(f"its records are damaged: {found.problems[0]}")
        return image_index.of(found)
