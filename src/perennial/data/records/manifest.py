"""The manifest of a record folder, which readers use instead of listing the folder."""

import hashlib
from pathlib import Path
from typing import Annotated

from pydantic import Field

from perennial.base import documents, files
from perennial.base.choices import Split, Task
from perennial.base.documents import JsonFile

FILE = "manifest.json"
LABELS_FILE = "labels.txt"
Count = Annotated[int, Field(ge=0)]


class Shard(JsonFile, extra="forbid"):
    """A TFRecord file."""

    file: Annotated[str, Field(pattern=r"^[^/\\\x00]{1,200}$")]  # name within the record folder
    examples: Count
    bytes: Count
    sha256: str


class SplitManifest(JsonFile, extra="forbid"):
    """The shards of a split, in reading order."""

    examples: Count
    per_class: list[int]  # examples that have the label; of several labels, they add up to more than examples
    unlabelled: Annotated[Count, Field(exclude_if=lambda count: not count)] = 0  # examples without any label
    shards: list[Shard]


class Manifest(JsonFile, extra="forbid"):
    """A record folder: its classes, its source files and every shard of every split."""

    dataset: str
    task: Annotated[Task, Field(exclude_if=lambda task: task == "multiclass")] = "multiclass"
    classes: list[str]
    source: dict[str, str]  # file: sha256
    splits: dict[Split, SplitManifest]

    @property
    def validates(self) -> bool:
        """Whether there are validation examples; with `dataset.validation_fraction: 0` the split is empty."""
        part = self.splits.get("validation")
        return part is None or bool(part.shards or part.examples)

    @property
    def label_columns(self) -> int:
        """The columns of arrays of several labels; 0 where images have one label."""
        return len(self.classes) if self.task == "multilabel" else 0

    def split_digest(self, split: Split) -> str:
        """SHA-256 of the images and labels of a split, in order; independent of other splits."""
        shards = [shard.sha256 for shard in self.splits[split].shards if shard.examples]
        return hashlib.sha256("\n".join(shards).encode()).hexdigest()


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest. Call it last: a folder with a manifest counts as complete."""
    files.write_json(folder / FILE, manifest.model_dump())


def load(folder: Path) -> Manifest:
    """The manifest of a record folder."""
    return documents.read_checked(folder / FILE, Manifest, "`dvc repro convert` makes or restores it")


def digest(folder: Path) -> str:
    """SHA-256 of the manifest, and through its shards' digests of the whole data set."""
    return files.sha256(folder / FILE)


def labels_text(classes: list[str]) -> str:
    """Content of labels.txt: a line `id:name` for each class, as slim writes it."""
    return "".join(f"{number}:{name}\n" for number, name in enumerate(classes))
