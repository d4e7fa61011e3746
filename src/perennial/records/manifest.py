"""The manifest: what a record folder holds. Readers take it, never a listing of the folder."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perennial import files
from perennial.errors import DataError

FILE = "manifest.json"
LABELS_FILE = "labels.txt"
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Shard(_Part):
    """A TFRecord file."""

    file: Annotated[str, Field(pattern=r"^[^/\\\x00]{1,200}$")]  # name within the record folder
    examples: Count
    bytes: Count
    sha256: str


class SplitManifest(_Part):
    """The shards of a split, in reading order."""

    examples: Count
    per_class: list[int]
    shards: list[Shard]


class Manifest(_Part):
    """A record folder: its classes, the files it was made from and every shard of every split."""

    dataset: str
    classes: list[str]
    source: dict[str, str]  # file: sha256
    splits: dict[Split, SplitManifest]


def write(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, which makes the folder's shards count; so it comes last."""
    files.write_json(folder / FILE, manifest.model_dump())


def load(folder: Path) -> Manifest:
    """The manifest of a record folder.

    Raises:
        DataError: there is none, or it is not of this form.
    """
    file = folder / FILE
    try:
        return Manifest.model_validate_json(file.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; `dvc repro convert` makes it") from error
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{file} is damaged: {where} {first['msg'].lower()}") from error


def digest(folder: Path) -> str:
    """The SHA-256 of the manifest, which through its shards' digests stands for the whole data set."""
    return files.sha256(folder / FILE)


def labels_text(classes: list[str]) -> str:
    """labels.txt: a line `id:name` a class, as slim writes it."""
    return "".join(f"{number}:{name}\n" for number, name in enumerate(classes))
