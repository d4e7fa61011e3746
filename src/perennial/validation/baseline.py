"""The pin of the previous version of the data, whose statistics drift is measured against.

Git tracks it and the validate stage depends on it. The stage must not write it: it would not when DVC restores
its results instead of running it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

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
    """The previous version of the data; both None where there was none."""

    dataset: str | None
    statistics: DataStatistics | None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.dataset is None) != (self.statistics is None):
            raise ValueError("dataset and statistics must both be null, or none of them")
        return self

    def before(self, dataset: str, manifest: str) -> DataStatistics | None:
        """The version to compare the one with this manifest with: of the same data set, and another one."""
        if dataset != self.dataset or self.statistics is None or self.statistics.manifest == manifest:
            return None
        return self.statistics


NONE = Baseline(dataset=None, statistics=None)


def load(file: Path) -> Baseline:
    """The pinned baseline; a missing file pins none.

    Raises:
        DataError: the file is not a baseline.
    """
    if not file.exists():
        return NONE
    try:
        return Baseline.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{file} is damaged or of an earlier version; `perennial pin baseline` replaces it"
        ) from error


def of_report(report: Mapping[str, Any]) -> Baseline:
    """The baseline for the version after the one that a validation report is about.

    Raises:
        ValueError, LookupError, TypeError: the report lacks its statistics.
    """
    found = report["statistics"]
    train = found["splits"]["train"]
    per_class = dict(zip(found["classes"], train["per_class"], strict=True))
    statistics = DataStatistics(manifest=found["manifest"], per_class=per_class, brightness=train["brightness"])
    return Baseline(dataset=found["dataset"], statistics=statistics)
