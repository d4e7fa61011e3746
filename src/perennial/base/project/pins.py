"""Pins: small files in git that name the version of each changing input that a run uses.

DVC hashes dependencies again after a stage's command, so an input that may change in the meantime is never a
dependency; its pin is. The flow writes pins before the stages, which verify what they fetch against them.
"""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from perennial.base import documents, files


class Pin(documents.JsonFile):
    """A pin, in a file of the project."""

    FILE: ClassVar[Path]

    @classmethod
    def read(cls) -> Self:
        """Read the pin; a missing file pins nothing.

        Raises:
            DataError: the file is not valid.
        """
        if not cls.FILE.exists():
            return cls()
        return documents.read_checked(cls.FILE, cls, f"`perennial pin {cls.FILE.stem}` writes it")

    def write(self) -> bool:
        """Write the pin; returns False, and leaves the file untouched, if it was pinned already."""
        return files.update_json(self.FILE, self.model_dump())


class ChampionPin(Pin):
    """The version that a run's model is compared with; both None if there was no champion."""

    FILE = Path("champion.json")

    commit: str | None = None  # SHA of its commit
    version: str | None = None  # such as v0.0.3

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.commit is None) != (self.version is None):
            raise ValueError("commit and version must both be null, or none of them")
        return self


class SourcePin(Pin):
    """The content of `dataset.url`, by a digest of names, sizes and ETags; all None without `dataset.url`."""

    FILE = Path("source.json")

    url: str | None = None
    objects: int | None = None
    bytes: int | None = None
    listing_sha256: str | None = None


class PinnedWeights(documents.JsonFile):
    """A file or folder of weights, with a digest of its names and contents; or a published file, by its name.

    Published weights never change under a name: the file of digests has the digest of the first download.
    """

    path: str  # as in params.yaml
    bytes: int | None = None
    sha256: str | None = None
    file: str | None = None  # name of the published file


class WeightsPin(Pin):
    """The start weights of a training; None where the option is null."""

    FILE = Path("weights.json")

    imagenet: PinnedWeights | None = None
    warm_start: PinnedWeights | None = None


FILES = (ChampionPin.FILE, SourcePin.FILE, WeightsPin.FILE)
