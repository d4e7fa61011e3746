"""Read TFRecord files of other programs, with the keys of slim, TensorFlow Datasets or Kaggle."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.choices import Split, Task, Transparency
from perennial.base.errors import DataError, listed
from perennial.data import archives
from perennial.data.archives.safety import IS_LFS, LFS
from perennial.data.datasets.dataset import Examples
from perennial.data.datasets.own.class_lists import MOST_TEXTS, Texts
from perennial.data.datasets.own.split_folders import said_of_several
from perennial.data.images import BadImage, Image, accept, decode
from perennial.data.tfrecord import example, framing, label_arrays

log = logging.getLogger(__name__)
MOST_CLASSES, MOST_SEVERAL = 100_000, 10_000  # the second where images have several labels
IMAGE_KEYS = ("image/encoded", "image")
LABEL_KEYS = ("image/class/label", "label", "class")
TEXT_KEY, OBJECTS = "image/class/text", "image/object/"
KEYS_SHOWN = 20


def examples(shards: Sequence[Path], texts: Texts, task: Task) -> Examples:
    """Read examples from the records in files, in file order; add what they say of their labels to `texts`.

    Several labels have as many columns as the largest needs; see `with_columns`.
    """
    spans, labels = [], list[tuple[int, ...]]()
    for number, file in enumerate(shards):
        with file.open("rb") as stream:
            size = file.stat().st_size
            found, fault = framing.scan(stream, size)
        if fault is not None:
            where = f"{file} record {len(found)} at byte {fault.offset}"
            raise DataError(f"{where}: {fault.message} [{fault.code}]")
        labels += _labels(file, found, texts, task)
        spans.append(np.column_stack((np.full(len(found), number, np.uint64), found)))
    places = np.concatenate(spans)
    columns = 1 + max((each[-1] for each in labels if each), default=0) if task == "multilabel" else 0
    return Examples(
        labels=label_arrays.of_lists(labels, columns),
        images=partial(_images, tuple(shards), places),
        alpha=True,
        image_bytes=places[:, 2].astype(np.int64) + framing.OVERHEAD,
    )


def used_labels(found: Iterable[Examples]) -> list[int]:
    """Return the labels that examples have, in ascending order."""
    parts = (each.labels if each.labels.ndim == 1 else np.nonzero(each.labels)[1] for each in found)
    labels: list[int] = np.unique(np.concatenate(list(parts))).tolist()
    if not labels:
        raise DataError(f"no record has a label; write the labels into {' or '.join(LABEL_KEYS)}")
    return labels


def with_columns(splits: Mapping[Split, Examples], columns: int) -> dict[Split, Examples]:
    """The splits with arrays of several labels that have so many columns."""
    return {
        split: replace(each, labels=np.pad(each.labels, ((0, 0), (0, columns - each.labels.shape[1]))))
        for split, each in splits.items()
    }


def of_several(splits: Mapping[Split, Examples], columns: int) -> dict[Split, Examples]:
    """The splits with so many columns of labels, and a line about these."""
    found = with_columns(splits, columns)
    counts = np.concatenate([each.labels.sum(axis=1, dtype=np.int64) for each in found.values()])
    log.info("%d records; %s", len(counts), said_of_several(counts.tolist()))
    return found


def _labels(file: Path, spans: framing.Spans, texts: Texts, task: Task) -> list[tuple[int, ...]]:
    """Read the labels of each record and the texts beside them, and verify the record's checksum."""
    labels = list[tuple[int, ...]]()
    most = MOST_CLASSES if task == "multiclass" else MOST_SEVERAL
    with file.open("rb") as stream:
        for number, (offset, length) in enumerate(spans.tolist()):
            stream.seek(offset)
            record = stream.read(length + framing.OVERHEAD)
            here = f"{file} record {number} at byte {offset}"
            if not framing.valid_data(record, np.array([[0, length]], np.uint64))[0]:
                raise DataError(f"{here}: the checksum of the record's data does not match [data_crc]")
            try:
                features = example.features_of(record[framing.HEADER.size : -framing.CHECKSUM.size])
                _value(features, "bytes_list", IMAGE_KEYS)
                _filename(features)
                found = _label_values(features, task)
                named = _texts(features, len(found))
            except ValueError as error:
                raise DataError(f"{here}: {error} [schema]") from error
            if wrong := [label for label in found if not 0 <= label < most]:
                raise DataError(f"{here}: label {wrong[0]}, expected 0 to {most - 1} [label_range]")
            labels.append(tuple(sorted(found)))
            for label, text in zip(found, named, strict=bool(named)):
                if text and len(texts) < MOST_TEXTS:
                    texts.setdefault((label, text), here)
    return labels


def _label_values(features: Any, task: Task) -> list[int]:
    key, values = _values(features, "int64_list", LABEL_KEYS)
    if task == "multiclass" and len(values) != 1:
        several = "; for several labels an image, set dataset.task to multilabel"
        raise ValueError(f"{key} has {len(values)} values, expected 1{several}")
    if len(set(values)) < len(values):
        raise ValueError(f"{key} repeats a label: {list(values)}")
    return list(values)


def _images(
    shards: Sequence[Path],
    spans: NDArray[np.uint64],
    indices: Sequence[int],
    transparency: Transparency = "drop",
) -> Iterator[Image | BadImage]:
    """Yield images by index; a file stays open while the next image is in it."""
    for shard, members in groupby(indices, lambda number: int(spans[number, 0])):
        file = shards[shard]
        with files.naming(file), file.open("rb") as stream:
            for offset, length in (spans[number, 1:].tolist() for number in members):
                stream.seek(offset + framing.HEADER.size)
                yield _image(stream.read(length), f"{file.name} at byte {offset}", transparency)


def _image(record: bytes, where: str, transparency: Transparency) -> Image | BadImage:
    features = example.features_of(record)
    encoded = _value(features, "bytes_list", IMAGE_KEYS)
    found = decode.header(encoded)
    if found is None:
        other = accept.accepted(encoded, where, transparency)
        return other if isinstance(other, BadImage) else other._replace(filename=_filename(features))
    image = Image(encoded, found.format, found.height, found.width, _filename(features))
    return accept.for_record(image, where, transparency)


def _texts(features: Any, labels: int) -> list[str]:
    """The text beside each label; none if there are none, or as many as no labels could have."""
    values = features[TEXT_KEY].bytes_list.value if TEXT_KEY in features else ()
    if len(values) > 1 and labels > 1 and len(values) != labels:
        raise ValueError(f"{TEXT_KEY} has {len(values)} values beside {labels} labels; write one for each")
    found = [bytes(each).decode("utf-8", "backslashreplace").strip() for each in values]
    return found if len(found) == labels else []


def _filename(features: Any) -> str | None:
    if "image/filename" not in features:
        return None
    name: bytes = example.only(features, "image/filename", "bytes_list")
    return name.decode("utf-8", "replace")


def _value(features: Any, kind: Literal["bytes_list", "int64_list"], keys: Sequence[str]) -> Any:
    """Return the single value of the first of these features that exists."""
    key, values = _values(features, kind, keys)
    if len(values) != 1:
        raise ValueError(f"{key} has {len(values)} values, expected 1")
    return values[0]


def _values(
    features: Any, kind: Literal["bytes_list", "int64_list"], keys: Sequence[str]
) -> tuple[str, Sequence[Any]]:
    """Return the first of these features that exists, and its values; others of the kind must say the same."""
    if there := [key for key in keys if key in features]:
        values = example.values_of(features, there[0], kind)
        for other in there[1:]:
            if features[other].WhichOneof("kind") == kind and getattr(features[other], kind).value != values:
                raise ValueError(f"{there[0]} and {other} differ; write the records again with one of them")
        return there[0], values
    kinds = {key: (features[key].WhichOneof("kind") or "empty") for key in features}
    if any(key.startswith(OBJECTS) for key in features):
        raise ValueError(
            f"{keys[0]} is missing, but there are keys of {OBJECTS}: records of object detection, with "
            "several labels an image; export them for classification, with one label an image"
        )
    shown = listed((f"{key!r} ({kind})" for key, kind in sorted(kinds.items())), KEYS_SHOWN)
    raise ValueError(
        f"{keys[0]} is missing; expected {' or '.join(keys)} as {kind}, got {shown or 'no keys'}; "
        "write the records again with these keys, or move files without labels away"
    )


def plain(file: Path, scratch: Path) -> Path:
    """The file, or its content in `scratch` if it is compressed with gzip or zlib, as TensorFlow does."""
    with files.naming(file), file.open("rb") as stream:
        start = stream.read(len(LFS))
    if start == LFS:
        raise DataError(f"{file} is {IS_LFS}")
    compression = framing.compression(start[: framing.HEADER.size])
    if compression is None:
        return file
    scratch.mkdir(exist_ok=True)
    target = scratch / file.name
    with files.naming(target), target.open("wb") as stream:
        archives.inflate(file, compression, stream)
    return target
