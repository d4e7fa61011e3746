"""Read TFRecord files of other programs, with the keys of slim, TensorFlow Datasets or Kaggle."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.choices import Transparency
from perennial.base.errors import DataError, listed
from perennial.data import archives
from perennial.data.archives.safety import IS_LFS, LFS
from perennial.data.datasets.dataset import Examples
from perennial.data.datasets.own.class_lists import MOST_TEXTS, Texts
from perennial.data.images import BadImage, Image, accept
from perennial.data.images.header import header
from perennial.data.tfrecord import example, framing

MOST_CLASSES = 100_000
IMAGE_KEYS = ("image/encoded", "image")
LABEL_KEYS = ("image/class/label", "label", "class")
TEXT_KEY, OBJECTS = "image/class/text", "image/object/"
KEYS_SHOWN = 20


def examples(shards: Sequence[Path], texts: Texts | None = None) -> Examples:
    """Read examples from the records in files, in file order; add what they say of their labels to `texts`."""
    spans, labels = [], []
    for number, file in enumerate(shards):
        with file.open("rb") as stream:
            size = file.stat().st_size
            found, fault = framing.scan(stream, size)
        if fault is not None:
            where = f"{file} record {len(found)} at byte {fault.offset}"
            raise DataError(f"{where}: {fault.message} [{fault.code}]")
        labels.append(_labels(file, found, {} if texts is None else texts))
        spans.append(np.column_stack((np.full(len(found), number, np.uint64), found)))
    places = np.concatenate(spans)
    return Examples(
        labels=np.concatenate(labels),
        images=partial(_images, tuple(shards), places),
        alpha=True,
        image_bytes=places[:, 2].astype(np.int64) + framing.OVERHEAD,
    )


def used_labels(found: Iterable[Examples]) -> list[int]:
    """Return the labels that examples have, in ascending order."""
    labels: list[int] = np.unique(np.concatenate([examples.labels for examples in found])).tolist()
    return labels


def _labels(file: Path, spans: framing.Spans, texts: Texts) -> NDArray[np.int64]:
    """Read the label of each record and the text beside it, and verify the record's checksum."""
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
                _value(features, "bytes_list", IMAGE_KEYS)
                _filename(features)
                label = _value(features, "int64_list", LABEL_KEYS)
            except ValueError as error:
                raise DataError(f"{here}: {error} [schema]") from error
            if not 0 <= label < MOST_CLASSES:
                raise DataError(f"{here}: label {label}, expected 0 to {MOST_CLASSES - 1} [label_range]")
            labels[number] = label
            if (text := _text(features)) and len(texts) < MOST_TEXTS:
                texts.setdefault((label, text), here)
    return labels


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
    found = header(encoded)
    if found is None:
        other = accept.accepted(encoded, where, transparency)
        return other if isinstance(other, BadImage) else other._replace(filename=_filename(features))
    image = Image(encoded, found.format, found.height, found.width, _filename(features))
    return accept.for_record(image, where, transparency)


def _text(features: Any) -> str:
    """The text beside a label; empty if there is none or several."""
    if TEXT_KEY not in features or len(values := features[TEXT_KEY].bytes_list.value) != 1:
        return ""
    return bytes(values[0]).decode("utf-8", "backslashreplace").strip()


def _filename(features: Any) -> str | None:
    if "image/filename" not in features:
        return None
    name: bytes = example.only(features, "image/filename", "bytes_list")
    return name.decode("utf-8", "replace")


def _value(features: Any, kind: Literal["bytes_list", "int64_list"], keys: Sequence[str]) -> Any:
    """Return the single value of the first of these features that exists."""
    for key in keys:
        if key in features:
            return example.only(features, key, kind)
    kinds = {key: (features[key].WhichOneof("kind") or "empty") for key in features}
    if any(key.startswith(OBJECTS) for key in features):
        raise ValueError(
            f"{keys[0]} is missing, but there are keys of {OBJECTS}: records of object detection, with "
            "several labels an image; export them for classification, with one label an image"
        )
    there = listed((f"{key!r} ({kind})" for key, kind in sorted(kinds.items())), KEYS_SHOWN)
    raise ValueError(
        f"{keys[0]} is missing; expected {' or '.join(keys)} as {kind}, got {there or 'no keys'}; "
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
