"""The user's own TFRecords, in the format of slim or TensorFlow Datasets; images are kept byte for byte.

The file name gives the split: `mnist_train.tfrecord`, `mnist-test.tfrecord-00000-of-00001`,
`validation-00000-of-00128`. Keys: `image/encoded` and `image/class/label`, or `image` and `label`.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from perennial import files
from perennial.choices import Split
from perennial.datasets.dataset import Dataset, Source
from perennial.datasets.readers import tfrecords
from perennial.errors import DataError


def read(folder: Path) -> Source:
    """Read the records of each split, in the order of file names.

    Raises:
        DataError: a file is damaged or a record has no image or label; names the record and its offset.
    """
    shards: dict[Split, list[Path]] = {}
    found = sorted(file for file in folder.iterdir() if file.is_file())
    for file in found:
        if (split := tfrecords.split_of(file.name)) is not None:
            shards.setdefault(split, []).append(file)
    if "train" not in shards:
        names = ", ".join(file.name for file in found[: tfrecords.SHOWN])
        raise DataError(f"{folder} holds no TFRecords of a train split: its files are {names}")
    for each in shards.values():
        tfrecords.check_complete(each)
    splits = {split: tfrecords.examples(shards[split]) for split in sorted(shards)}
    return Source(classes=tfrecords.class_names(folder, splits.values()), splits=splits)


def collect(path: Path, raw: Path) -> None:
    """Copy the TFRecords and the list of labels in a folder into the raw folder."""
    if not path.is_dir():
        raise DataError(f"{path} is not a folder; dataset.path must name one with TFRecords")
    found = sorted(file for file in path.iterdir() if file.is_file())
    for file in found:
        files.require_utf8(file)
    chosen = [file for file in found if belongs(file.name)]
    if not any(tfrecords.split_of(file.name) for file in chosen):
        raise DataError(f"{path} holds no TFRecords: no file is named like mnist_train.tfrecord")
    assemble(((file.name, file) for file in chosen), raw)


def belongs(name: str) -> bool:
    """Whether a name is that of a TFRecord file or a list of labels, outside of subfolders."""
    return "/" not in name and (tfrecords.split_of(name) is not None or name in tfrecords.LABEL_FILES)


def assemble(found: Iterable[tuple[str, Path]], raw: Path) -> None:
    """Copy files into the raw folder under their names."""
    for name, file in found:
        shutil.copyfile(file, raw / name)


TFRECORD = Dataset(read=read, collect=collect, assemble=assemble, belongs=belongs)
