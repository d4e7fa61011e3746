"""Pins: small files in `pins/`, in git, that name the version of each changing input that a run uses.

DVC hashes dependencies again after a stage's command, so an input that may change in the meantime is never a
dependency; its pin is. The flow writes pins before the stages, which verify what they fetch against them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from perennial.base import documents, files

FOLDER = Path("pins")
LABELS = Path("labels", "labels.csv")  # labels of images of traffic, in git; the images are beside it
STATE = {"comparisons", "promotions"}  # of the budget, in the pin of the champion
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Pin(documents.JsonFile):
    """A pin, in a file of the project."""

    FILE: ClassVar[Path]
    ADVICE: ClassVar[str] = "`perennial pin {0.stem}` writes it"

    @classmethod
    def read(cls) -> Self:
        """Read the pin; a missing file pins nothing."""
        if not cls.FILE.exists():
            return cls()
        return documents.read_checked(cls.FILE, cls, cls.ADVICE.format(cls.FILE))

    def write(self) -> bool:
        """Write the pin; returns False, and leaves the file untouched, if it was pinned already."""
        return files.update_json(self.FILE, self.content())

    def content(self) -> dict[str, object]:
        """What its file holds."""
        return self.model_dump()


class ChampionPin(Pin):
    """The version that a run's model is compared with; both None if there was no champion."""

    FILE = FOLDER / "champion.json"

    commit: str | None = None  # SHA of its commit
    version: str | None = None  # such as v0.0.3
    # With gate.false_share, else left out: comparisons that are recorded, and those of this block that passed.
    comparisons: int | None = Field(default=None, exclude_if=lambda count: count is None)
    promotions: int | None = Field(default=None, exclude_if=lambda count: count is None)

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.commit is None) != (self.version is None):
            raise ValueError("commit and version must both be null, or none of them")
        return self


class SourcePin(Pin):
    """The content of `dataset.url` by digests of its listing and of labels; all None without `dataset.url`."""

    FILE = FOLDER / "source.json"

    url: str | None = None
    objects: int | None = None
    bytes: int | None = None
    listing_sha256: str | None = None
    labels_sha256: str | None = None

    def content(self) -> dict[str, object]:
        """What its file holds: without labels nothing of them, so that files of others keep their bytes."""
        return self.model_dump(exclude=None if self.labels_sha256 else {"labels_sha256"})


class PinnedWeights(documents.JsonFile):
    """A file or folder of weights, by a digest of names and contents; or a published file, by its name."""

    path: str  # as in params.yaml
    bytes: int | None = None
    sha256: str | None = None
    file: str | None = None  # name of the published file


class PinnedTeacher(documents.JsonFile):
    """The version that `train.teacher` named; no version and commit: there was no champion yet."""

    path: str  # as in params.yaml
    version: str | None = None
    commit: str | None = None


class WeightsPin(Pin):
    """The start weights of a training, and its teacher; None where the option is null."""

    FILE = FOLDER / "weights.json"

    imagenet: PinnedWeights | None = None
    warm_start: PinnedWeights | None = None
    teacher: PinnedTeacher | None = Field(default=None, exclude_if=lambda teacher: teacher is None)


class Reason(documents.JsonFile):
    """Why an image is excluded, who decided it, and when."""

    because: str
    who: str
    date: str  # of the decision, as 2026-11-23


class Exclusions(Pin):
    """Images that no records may hold. Only `digests` is a DVC parameter: reasons make no stage stale."""

    FILE = FOLDER / "exclusions.json"
    ADVICE = "`git checkout {0}` restores it, `perennial forget` adds to it"

    digests: list[Digest] = Field(default=[])  # SHA-256 of image files, in ascending order
    reasons: dict[Digest, Reason] = Field(default={})

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        if self.digests != sorted(set(self.digests)):
            raise ValueError("the digests must be in ascending order, each once")
        return self

    def with_reason(self, digests: Mapping[str, Reason]) -> Self:
        """Add exclusions; existing ones keep their reason."""
        merged = sorted({*self.digests, *digests})
        return self.model_copy(update={"digests": merged, "reasons": {**digests, **self.reasons}})


def labels_sha256() -> str | None:
    """The digest of the table of labels, which names each image by its own; None without a table."""
    return files.sha256(LABELS) if LABELS.is_file() else None


FILES = (ChampionPin.FILE, SourcePin.FILE, WeightsPin.FILE)
