"""TFRecords of one's own, as slim or TensorFlow Datasets write them: their images go on untouched.

The split stands in a file's name: `mnist_train.tfrecord`, `mnist-test.tfrecord-00000-of-00001`,
`validation-00000-of-00128`. Keys: `image/encoded` and `image/class/label`, or `image` and `label`.
"""

import shutil
from pathlib import Path

from perennial import files
from perennial.config.choices import Split
from perennial.datasets import class_names, foreign_records, shard_names
from perennial.datasets.dataset import Dataset, Source
from perennial.errors import DataError


def read(folder: Path) -> Source:
    """The records of each split, in the order of file names.

    Raises:
        DataError: a file is damaged or a record has no image or label; says which, and at which byte.
    """
    shards: dict[Split, list[Path]] = {}
    found = sorted(file for file in folder.iterdir() if file.is_file())
    for file in found:
        if (split := shard_names.split_of(file.name)) is not None:
            shards.setdefault(split, []).append(file)
    if "train" not in shards:
        names = ", ".join(file.name for file in found[: shard_names.SHOWN])
        raise DataError(f"{folder} holds no TFRecords of a train split: its files are {names}")
    for each in shards.values():
        shard_names.check_complete(each)
    splits = {split: foreign_records.examples(shards[split]) for split in sorted(shards)}
    return Source(classes=class_names.read(folder, splits.values()), splits=splits)


def collect(path: Path, raw: Path) -> None:
    """Copies the TFRecords in a folder, and its list of labels, into the raw folder."""
    if not path.is_dir():
        raise DataError(f"{path} is no folder; dataset.path must name one with TFRecords")
    found = sorted(file for file in path.iterdir() if file.is_file())
    for file in found:
        files.require_utf8(file)
    wanted = [file for file in found if shard_names.split_of(file.name) or file.name in class_names.LABELS]
    if not any(shard_names.split_of(file.name) for file in wanted):
        raise DataError(f"{path} holds no TFRecords: no file is named like mnist_train.tfrecord")
    for file in wanted:
        shutil.copyfile(file, raw / file.name)


TFRECORD = Dataset(read=read, collect=collect)
