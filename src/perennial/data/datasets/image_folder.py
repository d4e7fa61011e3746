"""The user's own images: a folder or an archive with class folders or a table; `own` decides which."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from perennial.base.choices import Task
from perennial.base.config.data import TableConfig
from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets.dataset import Dataset, Examples, Source
from perennial.data.datasets.own import image_assignment
from perennial.data.datasets.own.split_folders import Item
from perennial.data.datasets.readers import tar_images
from perennial.data.tfrecord import label_arrays

SUFFIXES = {"tar": ".tar", "gzip": ".tar.gz", "bzip2": ".tar.bz2", "xz": ".tar.xz", "zip": ".zip"}


def with_table(table: TableConfig, task: Task = "multiclass") -> Dataset:
    """Return the data set of a folder whose labels or splits a table gives."""
    return Dataset(
        read=partial(read, table=table, task=task),
        collect=partial(collect, table=table, task=task),
        assemble=partial(assemble, table=table, task=task),
        decoded=True,
    )


def collect(content: Path, raw: Path, table: TableConfig | None = None, task: Task = "multiclass") -> None:
    """Pack a folder into `images.tar`, or copy an archive, which must stay writable for the user."""
    if content.is_dir():
        members, opened = archives.folder_contents(content), lambda each: (content / each.name).read_bytes()
        image_assignment.find(members, opened, content, table=table, task=task).log(content)
        archives.pack(content, raw / "images.tar")
    elif content.is_file():
        shutil.copyfile(content, raw / f"images{SUFFIXES[archives.format_of(content)]}")
    else:
        raise DataError(f"{content} does not exist; dataset.path names a folder of images or an archive of one")


def assemble(
    found: Iterable[tuple[str, Path]], raw: Path, table: TableConfig | None = None, task: Task = "multiclass"
) -> None:
    """Pack fetched images, given folder by folder, into the raw folder as `images.tar`."""
    archives.pack_files(found, tar := raw / "images.tar")
    members, content = archives.contents(tar), partial(archives.content, tar)
    image_assignment.find(members, content, raw, table=table, task=task).log(raw)


def read(raw: Path, table: TableConfig | None = None, task: Task = "multiclass") -> Source:
    """Read the images from the single plain tar file in the folder."""
    tars = sorted(raw.glob("*.tar"))
    if len(tars) != 1:
        raise DataError(f"{raw} holds {[tar.name for tar in tars]}, expected one .tar file")
    return read_tar(tars[0], table=table, task=task)


def read_tar(
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


def examples(tar: Path, items: Sequence[Item], above: str, label_columns: int) -> Examples:
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


IMAGE_FOLDER = Dataset(read=read, collect=collect, assemble=assemble, decoded=True)
