"""Names and records of published versions, the same in a folder and in S3."""

from dataclasses import dataclass

from pydantic import Field

from perennial.export.layout import EXTRA
from perennial.files import JsonFile

CURRENT = "current"  # in a folder a link, in S3 an object: `s3.Pointer`
PROVENANCE = EXTRA / "provenance.json"  # in each version; its digest is in the record
RECORD = EXTRA / "published.json"  # in each version, written last
UNCHANGED = "nothing was changed; restore it, or move it away"


class Record(JsonFile):
    """The record of a published version."""

    version: int
    files: dict[str, str]  # SHA-256 by path
    provenance: str | None = None  # SHA-256; None in versions of earlier releases

    @property
    def all_files(self) -> dict[str, str]:
        """The SHA-256 of all files by path, but of the record itself."""
        return {**self.files, **({PROVENANCE.as_posix(): self.provenance} if self.provenance else {})}


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
