"""Indices of images of earlier versions, on this machine: copies of those that validate wrote.

For versions before the index there was, it is made from their records, once.
"""

import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter

from perennial import files
from perennial.audit import sides
from perennial.audit.sides import Side
from perennial.config.data import ComputeConfig
from perennial.errors import DataError, PerennialError
from perennial.lineage.trainings import FOLDER, Recorded
from perennial.validation import image_index, integrity
from perennial.validation.image_index import ImageIndex

MISSING = "missing.json"  # reasons by records
log = logging.getLogger(__name__)


class Indices:
    """The index of each version's records; the first question for one reads DVC's cache or remote.

    What nobody has is remembered in a file, so that later questions do not ask for it again.
    """

    def __init__(self, folder: Path, compute: ComputeConfig) -> None:
        self._folder, self._compute = folder, compute
        try:
            self._missing = TypeAdapter(dict[str, str]).validate_json((folder / MISSING).read_bytes())
        except (OSError, ValueError):
            self._missing = {}

    def of(self, recorded: Recorded, *, ask: bool) -> ImageIndex:
        """The index of the images that a training read; `ask` again for what was missing.

        Raises:
            PerennialError: neither DVC's cache nor its remote holds it or the records, or the records are
                damaged.
        """
        file = self._folder / f"{recorded.records.removesuffix(FOLDER)}.npy"
        try:
            return image_index.read(file)
        except DataError:
            file.unlink(missing_ok=True)
        if not ask and recorded.records in self._missing:
            raise DataError(self._missing[recorded.records])
        try:
            self._make(recorded, file)
        except PerennialError as error:
            self._missing[recorded.records] = str(error)
            files.write_json(self._folder / MISSING, self._missing)
            raise
        return image_index.read(file)

    def _make(self, recorded: Recorded, file: Path) -> None:
        with tempfile.TemporaryDirectory(dir=_made(self._folder)) as scratch:
            found = self._written(recorded.index, Path(scratch)) if recorded.index else None
            if found is None:
                found = self._from_records(recorded.records, Path(scratch, "records"))
            files.write_bytes(file, image_index.content(found))

    @cached_property
    def _sides(self) -> Sequence[Side]:
        try:
            return [side for side in sides.open_sides() if side is not None]
        except sides.Unsupported as error:
            log.warning("%s, so only DVC's cache was asked; `dvc fetch --all-commits` fills it", error)
            return [sides.open_cache()]

    def _written(self, digest: str, scratch: Path) -> ImageIndex | None:
        """The index that validate wrote; None if that version wrote none, or nobody has it."""
        own = [md5 for md5, name in self._members(digest) if name == image_index.FILE]
        if own and self._fetched(own[0], scratch / image_index.FILE):
            return image_index.read(scratch / image_index.FILE)
        return None

    def _from_records(self, digest: str, folder: Path) -> ImageIndex:
        members = list(self._members(digest))
        if not members:
            raise DataError("neither DVC's cache nor its remote holds its index of images or its records")
        log.info("reading the records %s once, to index their images", digest[:12])
        for md5, name in members:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if not self._fetched(md5, file):
                raise DataError(f"neither DVC's cache nor its remote holds its {name} whole")
        found = integrity.check(folder, fingerprints=True, where=self._compute)
        if found.problems:
            raise DataError(f"its records are damaged: {found.problems[0]}")
        return image_index.of(found)

    def _members(self, digest: str) -> Iterator[tuple[str, str]]:
        """Digest and relative path of the files of a folder; none where nobody has its list."""
        listed = next((found for side in self._sides if (found := side.content(digest)) is not None), b"[]")
        for each in json.loads(listed):
            name = Path(str(each["relpath"]))
            if name.is_absolute() or ".." in name.parts:
                raise PerennialError(f"DVC's list {digest} names a file outside its folder: {name}")
            yield str(each["md5"]), name.as_posix()

    def _fetched(self, digest: str, file: Path) -> bool:
        for side in self._sides:
            file.unlink(missing_ok=True)
            if side.fetch(digest, file):
                return True
        return False


def _made(folder: Path) -> Path:
    files.make_folder(folder)
    return folder
