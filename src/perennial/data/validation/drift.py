"""The baseline (pinned statistics of the previous data version), and drift of the training data since then.

Git tracks the baseline and the validate stage depends on it. The stage must not write it, because DVC may
restore the stage's results without running it.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from perennial.base.documents import JsonFile
from perennial.base.errors import DataError
from perennial.data.images import BRIGHTNESS_BINS

Count = Annotated[int, Field(ge=0)]


class DataStatistics(JsonFile, extra="forbid"):
    """Statistics of the training examples of a version of the data."""

    manifest: str  # its digest
    per_class: dict[str, Count]
    # Where images have several labels; the classes then add up to another number.
    examples: Annotated[Count | None, Field(exclude_if=lambda count: count is None)] = None
    # Images by mean brightness.
    brightness: Annotated[list[Count], Field(min_length=BRIGHTNESS_BINS, max_length=BRIGHTNESS_BINS)]


class Baseline(JsonFile, extra="forbid"):
    """The previous version of the data; both fields are None if there was none."""

    dataset: str | None
    statistics: DataStatistics | None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.dataset is None) != (self.statistics is None):
            raise ValueError("dataset and statistics must both be null, or none of them")
        return self

    def before(self, dataset: str, manifest: str) -> DataStatistics | None:
        """The previous version if it is comparable: of the same data set, with another manifest."""
        if dataset != self.dataset or self.statistics is None or self.statistics.manifest == manifest:
            return None
        return self.statistics


NO_BASELINE = Baseline(dataset=None, statistics=None)


def load_baseline(file: Path) -> Baseline:
    """Load the pinned baseline; an empty one if the file is missing."""
    if not file.exists():
        return NO_BASELINE
    try:
        return Baseline.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(f"{file} is damaged or too old; `perennial pin baseline` replaces it") from error


def baseline_of(report: Mapping[str, Any]) -> Baseline:
    """Create the next version's baseline from a validation report."""
    found = report["statistics"]
    train = found["splits"]["train"]
    per_class = dict(zip(found["classes"], train["per_class"], strict=True))
    statistics = DataStatistics(
        manifest=found["manifest"],
        per_class=per_class,
        examples=train["examples"] if found.get("task") == "multilabel" else None,
        brightness=train["brightness"],
    )
    return Baseline(dataset=found["dataset"], statistics=statistics)


class Drift(NamedTuple):
    """The largest difference between two distributions, and where it is."""

    distance: float  # 0..1; exact but for one rounding, so that a threshold of 0.1 is exact
    where: str | int  # the class, or the bin


def labels(
    counts: Mapping[str, int], before: Mapping[str, int], totals: tuple[int | None, int | None] = (None, None)
) -> Drift:
    """Label drift: the largest change of one class's share, matched by name (L-infinity distance).

    A share is that of all labels; of several labels an image, that of the examples, whose numbers are `totals`.
    """
    names = sorted({*counts, *before})
    now, then = ([each.get(name, 0) for name in names] for each in (counts, before))
    distance, place = largest_difference(now, then, totals=totals)
    return Drift(distance, names[place])


def brightness(counts: Sequence[int], before: Sequence[int]) -> Drift:
    """Brightness drift: the Kolmogorov-Smirnov distance of two histograms, and the bin of the difference."""
    return Drift(*largest_difference(counts, before, cumulative=True))


def largest_difference(
    counts: Sequence[int],
    before: Sequence[int],
    *,
    cumulative: bool = False,
    totals: tuple[int | None, int | None] = (None, None),
) -> tuple[float, int]:
    """The largest difference of two histograms' shares, 0..1, and the first bin that has it."""
    total, total_before = totals[0] or sum(counts) or 1, totals[1] or sum(before) or 1
    # Integers until the last division: as floats, 0.6 - 0.5 is not 0.1.
    differences = [now * total_before - then * total for now, then in zip(counts, before, strict=True)]
    sizes = [abs(difference) for difference in (accumulate(differences) if cumulative else differences)]
    return max(sizes) / (total * total_before), sizes.index(max(sizes))
