"""The user's own TFRecords, of slim or TensorFlow Datasets; images are kept byte for byte.

`own.shards` finds their splits, `own.class_lists` their classes.
"""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from perennial.base.choices import Task
from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets.dataset import Dataset, Source
from perennial.data.datasets.own import class_lists, shards
from perennial.data.datasets.readers import tfrecords

PLAIN = "decompressed"  # folder beside the files
UNPACKED = ".unpacked.tar"


def read(folder: Path, task: Task = "multiclass") -> Source:
    """Read the records of each split, in the order of file names."""
    found = sorted(file for file in folder.iterdir() if file.is_file())
    texts: class_lists.Texts = {}
    splits = {
        split: tfrecords.examples([tfrecords.plain(file, folder / PLAIN) for file in part], texts, task)
        for split, part in shards.of_splits(found, folder).items()
    }
    lists = [file for file in found if class_lists.is_class_list(file.name)]
    classes = class_lists.classes(lists, texts, tfrecords.used_labels(splits.values()))
    if task == "multilabel":
        splits = tfrecords.of_several(splits, len(classes))
    return Source(classes=classes, task=task, splits=splits)


def collect(path: Path, raw: Path) -> None:
    """Copy the TFRecords and the list of classes in a folder or an archive into the raw folder."""
    if path.is_dir():
        found = shards.in_folder(path)
        for name, target in shards.chosen_below(found, path).items():
            shutil.copyfile(found[name], raw / target)
    elif path.is_file() and not shards.is_shard(path.name):
        tar = raw / UNPACKED
        archives.expand(path, tar)
        members = {each.name: each for each in archives.contents(tar) if not each.folder}
        for name, target in shards.chosen_below(members, path).items():
            archives.extract(tar, members[name], raw / target)
        tar.unlink()
    else:
        raise DataError(f"{path} is not a folder or an archive; dataset.path must name one of TFRecords")


def belongs(name: str) -> bool:
    """Whether a name below `dataset.url` is that of a TFRecord file or of a list of classes."""
    return shards.raw_name(name) is not None


def assemble(found: Iterable[tuple[str, Path]], raw: Path) -> None:
    """Copy files into the raw folder, under their names there."""
    fetched = dict(found)
    for name, target in shards.chosen(fetched)[0].items():
        shutil.copyfile(fetched[name], raw / target)


TFRECORD = Dataset(read=read, collect=collect, assemble=assemble, belongs=belongs)
SEVERAL_LABELS = replace(TFRECORD, read=partial(read, task="multilabel"))
