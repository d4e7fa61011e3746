"""Names, records and order of published versions, for folders and S3 alike."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from perennial.base import files
from perennial.base.documents import JsonFile
from perennial.base.errors import DataError, QualityError
from perennial.model.export_layout import EXTRA

CURRENT = "current"  # in a folder a link, in S3 an object, `Pointer`
PROVENANCE = EXTRA / "provenance.json"  # in each version; its digest is in the record
RECORD = EXTRA / "published.json"  # in each version, written last
T = TypeVar("T")
ADDED = {PROVENANCE.as_posix(), RECORD.as_posix()}
UNCHANGED = "nothing was changed; restore it, or move it away"


def of_export(found: Mapping[str, T]) -> dict[str, T]:
    """The files of a version, by path, without those that publishing adds."""
    return {name: each for name, each in found.items() if name not in ADDED}


class VersionRecord(JsonFile):
    """The record of a published version."""

    version: int
    files: dict[str, str]  # SHA-256 by path
    provenance: str  # SHA-256

    @property
    def all_files(self) -> dict[str, str]:
        """The SHA-256 of all files except the record itself, by path."""
        return {**self.files, PROVENANCE.as_posix(): self.provenance}


@dataclass(frozen=True, kw_only=True)
class AllowedExport:
    """An export that passed the gate or that a person promoted, with its digests and the decision."""

    export: Path
    digests: Mapping[str, str]  # SHA-256 of its files by path, as `verified_digests` gives them
    decision: Mapping[str, object]  # of the gate
    provenance: bytes

    def record(self, version: int) -> bytes:
        """The record for this export as the given version."""
        provenance = hashlib.sha256(self.provenance).hexdigest()
        content = {"version": version, "files": dict(self.digests), "decision": dict(self.decision)}
        return files.json_bytes({**content, "provenance": provenance})


@dataclass(frozen=True)
class PublishedVersions:
    """The versions published to a folder or URL."""

    place: str
    versions: Sequence[int]  # complete ones, in ascending order
    current: int | None
    rolled_back: Collection[int]

    def __str__(self) -> str:
        return f"{self.place} has the versions {list(self.versions)}, {CURRENT} is {self.current}"

    def target(self, version: int | None) -> int:
        """The version that a rollback makes current: the given one, else the previous one."""
        if version is None:
            earlier = (each for each in self.versions if each < (self.current or 0))
            version = max((each for each in earlier if each not in self.rolled_back), default=None)
        if version is None or version not in self.versions:
            missing = "to roll back to" if version is None else version
            raise DataError(f"there is no version {missing}: {self}; nothing was changed")
        return version

    def rolled_back_to(self, version: int) -> list[int]:
        """The versions that count as rolled back once this one is current."""
        later = {each for each in self.versions if each > version}
        return sorted({*self.rolled_back, *later} - {version})


def rolled_back_refusal(export: Path, version: int, place: str, current: int | None) -> QualityError:
    """The error for an export that is a rolled back version."""
    return QualityError(
        f"{export} is version {version} of {place}, which was rolled back; {CURRENT} stays {current}; "
        f"`perennial publish --rollback {version}` makes it current anyway"
    )


class Pointer(JsonFile):
    """The object `current` in S3."""

    version: int | None = None
    record_sha256: str | None = None
    rolled_back: list[int] = Field(default_factory=list)


@dataclass(frozen=True)
class Published:
    """The version that is current."""

    version: int
    path: str  # folder or URL
    moved: bool  # whether another version was current before
