"""Read TFRecord files of other programs, with the keys, names and label lists of slim or TensorFlow Datasets.

If a list of labels has ids, as in slim's `0:zero`, they determine the order.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perennial import files
from perennial.choices import Split
from perennial.datasets.dataset import Examples
from perennial.errors import DataError
from perennial.images import BadImage, Image
from perennial.images.header import header
from perennial.tfrecord import example, framing

MOST_CLASSES = 100_000
SPLITS: dict[str, Split] = {
    "train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"
}  # fmt: skip
ENDING = re.compile(r"\.tfrecords?\b")
OF = re.compile(r"(\d+)-of-(\d+)")
SHOWN = 10  # names in a message
LABEL_FILES = ("labels.txt", "label.labels.txt")  # slim's, with `0:zero` in each line, and TensorFlow Datasets'


def examples(shards: Sequence[Path]) -> Examples:
    """Read examples from the records in files, in file order.

    Raises:
        DataError: a file is damaged or a record has no image or label; names the record and its offset.
    """
    spans, labels = [], []
    for number, file in enumerate(shards):
        with file.open("rb") as stream:
            size = file.stat().st_size
            found, fault = framing.scan(stream, size)
        if fault is not None:
            where = f"{file} record {len(found)} at byte {fault.offset}"
            raise DataError(f"{where}: {fault.message} [{fault.code}]")
        labels.append(_labels(file, found))
        spans.append(np.column_stack((np.full(len(found), number, np.uint64), found)))
    places = np.concatenate(spans)
    return Examples(
        labels=np.concatenate(labels),
        images=partial(_images, tuple(shards), places),
        image_bytes=places[:, 2].astype(np.int64) + framing.OVERHEAD,
    )


def _labels(file: Path, spans: framing.Spans) -> NDArray[np.int64]:
    """Read the label of each record, and verify the record's checksum."""
    labels = np.zeros(len(spans), np.int64)
    with file.open("rb") as stream:
        for number, (offset, length) in enumerate(spans.tolist()):
            stream.seek(offset)
            record = stream.read(length + framing.OVERHEAD)
            here = f"{file} record {number} at byte {offset}"
            if not framing.valid_data(record, np.array([[0, length]], np.uint64))[0]:
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
    shards: Sequence[Path], spans: NDArray[np.uint64], indices: Sequence[int]
) -> Iterator[Image | BadImage]:
    """Yield images by index; a file stays open while the next image is in it."""
    for shard, members in groupby(indices, lambda number: int(spans[number, 0])):
        file = shards[shard]
        with files.naming(file), file.open("rb") as stream:
            for offset, length in (spans[number, 1:].tolist() for number in members):
                stream.seek(offset + framing.HEADER.size)
                yield _image(stream.read(length), f"{file.name} at byte {offset}")


def _image(record: bytes, where: str) -> Image | BadImage:
    features = example.features_of(record)
    encoded = _value(features, "bytes_list", "image/encoded", "image")
    found = header(encoded)
    if found is None:
        return BadImage(filename=where, reason="neither PNG nor JPEG")
    return Image(
        encoded=encoded,
        format=found.format,
        height=found.height,
        width=found.width,
        filename=_filename(features),
    )


def _filename(features: Any) -> str | None:
    if "image/filename" not in features:
        return None
    name: bytes = example.only(features, "image/filename", "bytes_list")
    return name.decode("utf-8", "replace")


def _value(features: Any, kind: Literal["bytes_list", "int64_list"], *keys: str) -> Any:
    """Return the single value of the first of these features that exists."""
    key = next((key for key in keys if key in features), keys[0])
    return example.only(features, key, kind)


def split_of(name: str) -> Split | None:
    """Return the split that a file name ends with; None if it is not a TFRecord file of a split.

    Extensions and shard numbers are ignored: `train_signs_test.tfrecord-00000-of-00001` is in the test split.

    Raises:
        DataError: the name contains a split, but not as its last word.
    """
    lower = name.lower()
    if not ENDING.search(lower) and not OF.search(lower):
        return None
    fields = re.findall(r"[^\W\d_][^\W_]*", OF.sub("", ENDING.sub("", lower)))
    if fields and fields[-1] in SPLITS:
        return SPLITS[fields[-1]]
    if named := [field for field in fields if field in SPLITS]:
        raise DataError(
            f"{name!r}: the split is ambiguous; make it the last word, as in own_{named[0]}.tfrecord"
        )
    return None


def check_complete(shards: Sequence[Path]) -> None:
    """Check that no shard is missing, by the number of shards in each name.

    Raises:
        DataError: a shard is missing, or the shards belong to several sets.
    """
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


def class_names(folder: Path, splits: Iterable[Examples]) -> tuple[str, ...]:
    """Read class names from the list of labels; without a list, use the labels themselves.

    Raises:
        DataError: the list has gaps, duplicates or lines without an id, or ends before the highest label.
    """
    labels = max(int(examples.labels.max(initial=0)) for examples in splits) + 1
    file = next((folder / name for name in LABEL_FILES if (folder / name).is_file()), None)
    if file is None:
        return tuple(str(label) for label in range(labels))
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not a list of labels: {error}") from error
    names = _by_id(lines, file) if file.name == LABEL_FILES[0] else tuple(lines)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{file} names the class {twice!r} twice")
    if len(names) < labels:
        raise DataError(f"{file} lists {len(names)} classes, but there are labels up to {labels - 1}")
    return names


def _by_id(lines: Sequence[str], file: Path) -> tuple[str, ...]:
    """Order names by id; lines without ids are already in order."""
    parts = [re.fullmatch(r"([0-9]+):(.*)", line) for line in lines]
    if not any(parts):
        return tuple(lines)
    names: dict[int, str] = {}
    for line, part in zip(lines, parts, strict=True):
        if part is None or not part[2].strip():
            raise DataError(f"{file}: the line {line!r} is not an id and a name, as in 0:cat")
        if int(part[1]) in names:
            raise DataError(f"{file}: the id {int(part[1])} occurs twice")
        names[int(part[1])] = part[2]
    if gap := sorted(set(range(len(names))) - set(names)):
        raise DataError(
            f"{file}: no class has the id {gap[0]}, but one has {max(names)}; ids run from 0 without a gap"
            + ("; add a line such as 0:background if no example has that label" if gap[0] == 0 else "")
        )
    return tuple(names[number] for number in range(len(names)))
