"""What the last two versions of the data were like, in a file that git tracks.

With both in git, validating a version again, here or elsewhere, compares it with the same one as at first.
"""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perennial import files
from perennial.errors import DataError
from perennial.images.statistics import BINS

Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Version(_Part):
    """What the training examples of a version of the data are like."""

    manifest: str  # its digest
    per_class: dict[str, Count]
    brightness: Annotated[list[Count], Field(min_length=BINS, max_length=BINS)]  # images by mean brightness


class Baseline(_Part):
    """The version before, where there was one, and the last, of one data set."""

    dataset: str
    versions: list[Version]

    def before(self, dataset: str, manifest: str) -> Version | None:
        """The version that the one with this manifest is to be compared with."""
        if dataset != self.dataset:
            return None
        others = [version for version in self.versions if version.manifest != manifest]
        return others[-1] if others else None


def load(file: Path) -> Baseline | None:
    """The baseline; None where there is none yet.

    Raises:
        DataError: the file is not of this form.
    """
    if not file.exists():
        return None
    try:
        return Baseline.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{file} is damaged; `git checkout {file}` brings it back, without it validate starts a new one"
        ) from error


def write(file: Path, dataset: str, now: Version, before: Version | None) -> None:
    """Notes a version as the last one; leaves the file alone where it already is."""
    baseline = Baseline(dataset=dataset, versions=[now] if before is None else [before, now])
    content = files.json_bytes(baseline.model_dump())
    if not file.exists() or file.read_bytes() != content:
        files.write_bytes(file, content)
