"""The examples in TFRecord files that others wrote, with the keys of slim or of TensorFlow Datasets."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perennial import files
from perennial.datasets.dataset import Examples
from perennial.errors import DataError
from perennial.images import BadImage, Image
from perennial.images.header import header
from perennial.tfrecord import example, framing

MOST_CLASSES = 100_000


def examples(shards: Sequence[Path]) -> Examples:
    """The records of some files, in their order.

    Raises:
        DataError: a file is damaged or a record has no image or label; says which, and at which byte.
    """
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


def _scanned(file: Path) -> framing.Spans:
    with file.open("rb") as stream:
        places, fault = framing.scan(stream, file.stat().st_size)
    if fault is not None:
        raise DataError(f"{file} record {len(places)} at byte {fault.offset}: {fault.message} [{fault.code}]")
    return places


def _labels(file: Path, places: framing.Spans) -> NDArray[np.int64]:
    """The label of each record, its checksum verified."""
    labels = np.zeros(len(places), np.int64)
    with file.open("rb") as stream:
        for number, (offset, length) in enumerate(places.tolist()):
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
    shards: Sequence[Path], places: NDArray[np.uint64], numbers: Sequence[int]
) -> Iterator[Image | BadImage]:
    """The images with these numbers; a file stays open while the next one is in it too."""
    for shard, members in groupby(numbers, lambda number: int(places[number, 0])):
        file = shards[shard]
        with files.naming(file), file.open("rb") as stream:
            for offset, length in (places[number, 1:].tolist() for number in members):
                stream.seek(offset + framing.HEADER.size)
                yield _image(stream.read(length), f"{file.name} at byte {offset}")


def _image(record: bytes, where: str) -> Image | BadImage:
    features = example.features_of(record)
    encoded = _value(features, "bytes_list", "image/encoded", "image")
    said = header(encoded)
    if said is None:
        return BadImage(filename=where, reason="neither PNG nor JPEG")
    return Image(
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
