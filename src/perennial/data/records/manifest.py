"""The manifest of a record folder, which readers use instead of listing the folder."""

import hashlib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perennial.base import files
from perennial.base.choices import Split
from perennial.base.errors import DataError

FILE = "manifest.json"
LABELS_FILE = "labels.txt"
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", defer_build=True)


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
    """A record folder: its classes, its source files and every shard of every split."""

    dataset: str
    classes: list[str]
    source: dict[str, str]  # file: sha256
    splits: dict[Split, SplitManifest]

    @property
    def validates(self) -> bool:
        """Whether there are validation examples; with `dataset.validation_fraction: 0` the split is empty."""
        part = self.splits.get("validation")
        return part is None or bool(part.shards or part.examples)

    def split_digest(self, split: Split) -> str:
        """SHA-256 of the images and labels of a split, in order; independent of other splits."""
        shards = [shard.sha256 for shard in self.splits[split].shards if shard.examples]
        return hashlib.sha256("\n".join(shards).encode()).hexdigest()


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest. Call it last: a folder with a manifest counts as complete."""
    files.write_json(folder / FILE, manifest.model_dump())


def load(folder: Path) -> Manifest:
    """The manifest of a record folder."""
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
        raise DataError(
            f"{file} is damaged: {where} {first['msg'].lower()}; `dvc checkout {folder}` restores the "
            "version in dvc.lock"
        ) from error


def digest(folder: Path) -> str:
    """SHA-256 of the manifest, and through its shards' digests of the whole data set."""
    return files.sha256(folder / FILE)


def labels_text(classes: list[str]) -> str:
    """Content of labels.txt: a line `id:name` for each class, as slim writes it."""
    return "".join(f"{number}:{name}\n" for number, name in enumerate(classes))
