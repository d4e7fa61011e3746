"""TFRecords of one's own, as slim or TensorFlow Datasets write them: their images go on untouched.

The split stands in a file's name: `mnist_train.tfrecord`, `mnist-test.tfrecord-00000-of-00001`,
`validation-00000-of-00128`. Keys: `image/encoded` and `image/class/label`, or `image` and `label`.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perennial.datasets.dataset import Dataset, Examples, Source, Split
from perennial.errors import DataError
from perennial.images import BadImage, Image
from perennial.images.header import header
from perennial.tfrecord import example, framing

SPLITS: dict[str, Split] = {
    "train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"
}  # fmt: skip
SPLIT = re.compile(rf"(?:^|[^a-z])({'|'.join(SPLITS)})(?:[^a-z]|$)")
OF = re.compile(r"(\d+)-of-(\d+)")
LABELS = ("labels.txt", "label.labels.txt")  # slim's, with `0:zero` in each line, and TensorFlow Datasets'
MOST_CLASSES = 100_000
SHOWN = 10  # names in a message


def read(folder: Path) -> Source:
    """The records of each split, in the order of file names.

    Raises:
        DataError: a file is damaged or a record has no image or label; says which, and at which byte.
    """
    shards: dict[Split, list[Path]] = {}
    found = sorted(file for file in folder.iterdir() if file.is_file())
    for file in found:
        if (split := _split(file.name)) is not None:
            shards.setdefault(split, []).append(file)
    for files in shards.values():
        _check_complete(files)
    splits = {split: _examples(shards[split]) for split in sorted(shards)}
    if "train" not in splits:
        names = ", ".join(file.name for file in found[:SHOWN])
        raise DataError(f"{folder} holds no TFRecords of a train split: its files are {names}")
    return Source(classes=_classes(folder, splits.values()), splits=splits)


def collect(path: Path, raw: Path) -> None:
    """Copies the TFRecords in a folder, and its list of labels, into the raw folder."""
    if not path.is_dir():
        raise DataError(f"{path} is no folder; dataset.path must name one with TFRecords")
    found = sorted(file for file in path.iterdir() if file.is_file())
    wanted = [file for file in found if _split(file.name) or file.name in LABELS]
    if not any(_split(file.name) for file in wanted):
        raise DataError(f"{path} holds no TFRecords: no file is named like mnist_train.tfrecord")
    for file in wanted:
        shutil.copyfile(file, raw / file.name)


def _split(name: str) -> Split | None:
    found = SPLIT.search(name.lower())
    return SPLITS[found[1]] if found and (".tfrecord" in name or "-of-" in name) else None


def _check_complete(shards: Sequence[Path]) -> None:
    """Refuses shards of which some are missing: each names how many there are."""
    names = {file.name for file in shards}
    if len({found[2] for name in names if (found := OF.search(name))}) > 1:
        raise DataError(
            f"{shards[0].parent} holds shards of several sets of one split: {', '.join(sorted(names)[:SHOWN])}"
        )
    for name in sorted(names):
        if (found := OF.search(name)) is None:
            continue
        for number in range(int(found[2])):
            other = f"{name[: found.start(1)]}{number:0{len(found[1])}d}{name[found.end(1) :]}"
            if other not in names:
                raise DataError(f"{shards[0].parent} holds {name} but not {other}")


def _examples(shards: Sequence[Path]) -> Examples:
    places, labels, total = [], [], 0
    for number, file in enumerate(shards):
        found = _scanned(file)
        labels.append(_labels(file, found))
        places.append(np.column_stack((np.full(len(found), number, np.uint64), found)))
        total += file.stat().st_size
    return Examples(
        labels=np.concatenate(labels),
        images=partial(_images, tuple(shards), np.concatenate(places)),
        encoded_bytes=total,
    )


def _scanned(file: Path) -> framing.Places:
    with file.open("rb") as stream:
        places, fault = framing.scan(stream, file.stat().st_size)
    if fault is not None:
        raise DataError(f"{file} record {len(places)} at byte {fault.offset}: {fault.message} [{fault.code}]")
    return places


def _labels(file: Path, places: framing.Places) -> NDArray[np.int64]:
    """The label of each record, its checksum verified."""
    labels = np.zeros(len(places), np.int64)
    with file.open("rb") as stream:
        for number, (offset, length) in enumerate(places.tolist()):
            stream.seek(offset)
            record = stream.read(length + framing.AROUND)
            here = f"{file} record {number} at byte {offset}"
            if not framing.sound(record, np.array([[0, length]], np.uint64))[0]:
                raise DataError(f"{here}: the checksum of the record's data does not match [data_crc]")
            try:
                features = example.features_of(record[framing.HEADER.size : -framing.CHECKSUM.size])
                _value(features, "bytes_list", "image/encoded", "image")
                _filename(features)
                label = _value(features, "int64_list", "image/class/label", "label")
            except ValueError as error:
                raise DataError(f"{here}: {error} [schema]") from error
            if not 0 <= label < MOST_CLASSES:
                raise DataError(f"{here}: label {label}, expected 0 to {MOST_CLASSES - 1} [label_range]")
            labels[number] = label
    return labels


def _images(
    shards: Sequence[Path], places: NDArray[np.uint64], numbers: Sequence[int]
) -> Iterator[Image | BadImage]:
    for number in numbers:
        shard, offset, length = places[number].tolist()
        with shards[shard].open("rb") as stream:
            stream.seek(offset + framing.HEADER.size)
            features = example.features_of(stream.read(length))
        encoded = _value(features, "bytes_list", "image/encoded", "image")
        said = header(encoded)
        if said is None:
            yield BadImage(filename=f"{shards[shard].name} at byte {offset}", reason="neither PNG nor JPEG")
        else:
            yield Image(
                encoded=encoded,
                format=said.format,
                height=said.height,
                width=said.width,
                filename=_filename(features),
            )


def _filename(features: Any) -> str | None:
    if "image/filename" not in features:
        return None
    name: bytes = example.only(features, "image/filename", "bytes_list")
    return name.decode("utf-8", "replace")


def _value(features: Any, kind: Literal["bytes_list", "int64_list"], *keys: str) -> Any:
    """The one value of the first of these features that is there."""
    key = next((key for key in keys if key in features), keys[0])
    return example.only(features, key, kind)


def _classes(folder: Path, splits: Any) -> tuple[str, ...]:
    """The class names from the list of labels; where there is none, the labels themselves."""
    labels = max(int(examples.labels.max(initial=0)) for examples in splits) + 1
    file = next((folder / name for name in LABELS if (folder / name).is_file()), None)
    if file is None:
        return tuple(str(label) for label in range(labels))
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is no list of labels: {error}") from error
    names = tuple(re.sub(r"^\d+:", "", line) for line in lines)
    if len(set(names)) < len(names):
        raise DataError(f"{file} names a class twice")
    if len(names) < labels:
        raise DataError(f"{file} lists {len(names)} classes, but there are labels up to {labels - 1}")
    return names


TFRECORD = Dataset(read=read, collect=collect)
