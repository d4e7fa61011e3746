"""Read images from class folders or by a table of labels, in a plain tar file; `own` decides which."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from perennial.base.choices import Task
from perennial.base.config.data import TableConfig
from perennial.data import archives
from perennial.data.datasets.dataset import Examples, Source
from perennial.data.datasets.own import image_assignment
from perennial.data.datasets.own.split_folders import Item
from perennial.data.datasets.readers import tar_images
from perennial.data.tfrecord import label_arrays


def read(
    tar: Path, classes: tuple[str, ...] = (), table: TableConfig | None = None, task: Task = "multiclass"
) -> Source:
    """Read the classes, by name, and the examples of a tar file; `classes`: it must have exactly those."""
    members, content = archives.contents(tar), partial(archives.content, tar)
    found = image_assignment.find(members, content, tar, classes, table, task)
    found.log(tar)
    width = len(found.classes) if task == "multilabel" else 0
    return Source(
        classes=found.classes,
        task=task,
        splits={split: examples(tar, own, found.folders[split], width) for split, own in found.splits.items()},
        columns=found.columns,
    )


def examples(tar: Path, items: Sequence[Item], above: str, label_columns: int = 0) -> Examples:
    """The examples of files of a plain tar file, sorted by the SHA-256 of their names; `above`: in messages."""
    ordered = [items[index] for index in tar_images.order([item.name for item in items])]
    found = tar_images.examples(
        tar,
        [item.member for item in ordered],
        tuple(item.name for item in ordered),
        label_arrays.of_lists([item.labels for item in ordered], label_columns),
        above=above,
    )
    return replace(found, further=tuple(item.further for item in ordered))
