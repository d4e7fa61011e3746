"""Small record folders, and the records in them."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.data.images import Image, png
from perennial.data.records import manifest
from perennial.data.tfrecord import example, framing

AROUND = 16  # bytes of a frame besides its data


def image(pixels: NDArray[np.uint8]) -> Image:
    """The pixels as a record holds them."""
    height, width = pixels.shape[:2]
    return Image(encoded=png.encode(pixels), format="png", height=height, width=width)


def datum(pixels: NDArray[np.uint8], label: int) -> bytes:
    return example.serialize(image(pixels), label)


def record(**features: Sequence[bytes | int]) -> bytes:
    """A framed record of these features; `__` in a name stands for a slash."""
    message = example.Example()
    for key, values in features.items():
        feature = message.features.feature[key.replace("__", "/")]
        kind = feature.bytes_list if values and isinstance(values[0], bytes) else feature.int64_list
        kind.SetInParent()  # also without values
        kind.value.extend(values)
    return framing.frame(message.SerializeToString(deterministic=True))


def data_in(content: bytes) -> list[bytes]:
    """The data of every record of a valid shard, by the format's definition and not by the code under test."""
    found, offset = [], 0
    while offset < len(content):
        (length,) = struct.unpack_from("<Q", content, offset)
        found.append(content[offset + 12 : offset + 12 + length])
        offset += length + AROUND
    return found


def offsets_in(content: bytes) -> list[int]:
    """Where every record of a valid shard begins; last, where the file ends."""
    offsets = [0]
    for data in data_in(content):
        offsets.append(offsets[-1] + len(data) + AROUND)
    return offsets


def entry(file: Path) -> manifest.Shard:
    """The manifest entry of a valid shard."""
    return manifest.Shard(
        file=file.name,
        examples=len(data_in(file.read_bytes())),
        bytes=file.stat().st_size,
        sha256=files.sha256(file),
    )


def write_folder(
    folder: Path,
    splits: Mapping[manifest.Split, Sequence[Sequence[bytes]]],
    classes: Sequence[str],
    name: str = "pets_{split}_{number:05d}-of-{count:05d}.tfrecord",
) -> None:
    """Writes records, given for each split as shards of data, with all that belongs to them."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    for split, shards in splits.items():
        entries = []
        for number, shard in enumerate(shards):
            file = folder / name.format(split=split, number=number, count=len(shards))
            file.write_bytes(b"".join(map(framing.frame, shard)))
            entries.append(entry(file))
        labels = [example.parse(data)[0].label for shard in shards for data in shard]
        per_class = np.bincount(np.array(labels, np.int64), minlength=len(classes)).tolist()
        parts[split] = manifest.SplitManifest(examples=len(labels), per_class=per_class, shards=entries)
    (folder / "labels.txt").write_text(manifest.labels_text(list(classes)), encoding="utf-8")
    whole = manifest.Manifest(dataset="pets", classes=list(classes), source={}, splits=parts)
    manifest.write(folder, whole)


def write_pets(folder: Path) -> Path:
    """Writes a small valid record folder: 20, 2 and 2 images of 2x2 pixels, each filled with its number."""
    data = [datum(np.full((2, 2), number, np.uint8), number % 2) for number in range(20)]
    splits = {"train": [data], "validation": [data[:2]], "test": [data[:2]]}
    write_folder(folder, splits, ("cat", "dog"), "{split}.tfrecord")
    return folder
