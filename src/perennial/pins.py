"""Pins: small files in git that say which version of something that moves a run uses.

DVC hashes dependencies again after the command of a stage, so what may change meanwhile is never a dependency.
Its pin is: the flow writes it before the stages, and they verify what they fetch against it.
"""

from pathlib import Path
from typing import Self

from pydantic import model_validator

from perennial import files

CHAMPION = Path("champion.json")  # in the project
SOURCE = Path("source.json")
WEIGHTS = Path("weights.json")
PINS = (CHAMPION, SOURCE, WEIGHTS)


class ChampionPin(files.JsonFile):
    """The version that a run's model is compared with; both None where no version was promoted yet."""

    commit: str | None = None  # SHA of its commit
    version: str | None = None  # such as v0.0.3

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.commit is None) != (self.version is None):
            raise ValueError("commit and version must both be null, or none of them")
        return self


def read_champion(file: Path = CHAMPION) -> ChampionPin:
    """The pinned champion; a missing file pins none.

    Raises:
        DataError: the file is not valid.
    """
    if not file.exists():
        return ChampionPin()
    return files.read_checked(file, ChampionPin, "`perennial pin champion` writes it")


def write_champion(file: Path, pin: ChampionPin) -> bool:
    """Pin a champion; returns False where it was pinned already, and then leaves the file untouched."""
    content = files.json_bytes(pin.model_dump())
    if file.is_file() and file.read_bytes() == content:
        return False
    files.write_bytes(file, content)
    return True
