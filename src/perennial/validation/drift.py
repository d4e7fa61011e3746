"""Drift of the training data since the previous version, whose statistics are in a file that git tracks.

The file holds the last two versions, so that validating a version again, here or elsewhere, compares it with
the same previous version.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perennial import files
from perennial.errors import DataError
from perennial.images.statistics import BINS

Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class DataStatistics(_Part):
    """Statistics of the training examples of a version of the data."""

    manifest: str  # its digest
    per_class: dict[str, Count]
    brightness: Annotated[list[Count], Field(min_length=BINS, max_length=BINS)]  # images by mean brightness


class Baseline(_Part):
    """The last version of a data set and, if there was one, the version before."""

    dataset: str
    versions: list[DataStatistics]

    def before(self, dataset: str, manifest: str) -> DataStatistics | None:
        """The version to compare the one with this manifest with."""
        if dataset != self.dataset:
            return None
        others = [version for version in self.versions if version.manifest != manifest]
        return others[-1] if others else None


def load(file: Path) -> Baseline | None:
    """The baseline; None if there is none yet.

    Raises:
        DataError: the file is not a baseline.
    """
    if not file.exists():
        return None
    try:
        return Baseline.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{file} is damaged; `git checkout {file}` restores it, without it validate starts a new one"
        ) from error


def write(file: Path, dataset: str, now: DataStatistics, before: DataStatistics | None) -> None:
    """Records a version as the last one; leaves the file untouched if it already is."""
    baseline = Baseline(dataset=dataset, versions=[now] if before is None else [before, now])
    content = files.json_bytes(baseline.model_dump())
    if not file.exists() or file.read_bytes() != content:
        files.write_bytes(file, content)


class Drift(NamedTuple):
    """The largest difference between two distributions, and where it is."""

    distance: float  # 0..1; exact but for one rounding, so that a threshold of 0.1 is exact
    where: str | int  # the class, or the bin


def labels(counts: Mapping[str, int], before: Mapping[str, int]) -> Drift:
    """Label drift: the largest change of one class's share.

    Classes are matched by name; one that was added or removed has the share 0 on the other side. Ties go to the
    first name. Source: the L-infinity distance of TensorFlow Data Validation.
    """
    names = sorted({*counts, *before})
    now, then = ([each.get(name, 0) for name in names] for each in (counts, before))
    distance, place = largest_difference(now, then)
    return Drift(distance, names[place])


def brightness(counts: Sequence[int], before: Sequence[int]) -> Drift:
    """Brightness drift: the Kolmogorov-Smirnov distance of two histograms, and the bin of the difference.

    Single bins do not show a broad histogram that moves by one bin; the cumulative distributions do.
    """
    return Drift(*largest_difference(counts, before, cumulative=True))


def largest_difference(
    counts: Sequence[int], before: Sequence[int], *, cumulative: bool = False
) -> tuple[float, int]:
    """The largest difference of two histograms' shares, 0..1, and the first bin that has it.

    Empty histograms have shares of 0. Raises ValueError for different numbers of bins.
    """
    total, total_before = sum(counts) or 1, sum(before) or 1
    # Integers until the last division: as floats, 0.6 - 0.5 is not 0.1.
    differences = [now * total_before - then * total for now, then in zip(counts, before, strict=True)]
    sizes = [abs(difference) for difference in (accumulate(differences) if cumulative else differences)]
    return max(sizes) / (total * total_before), sizes.index(max(sizes))
