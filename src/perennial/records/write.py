"""Encoding of examples as records and writing of shards, part by part: memory does not grow with the data."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perennial import files
from perennial.config.choices import Split
from perennial.datasets.dataset import Images
from perennial.datasets.readers.fixed_size import FixedSizeImages
from perennial.images import BadImage
from perennial.records import manifest
from perennial.records.sharding import ShardPart
from perennial.runtime import parallel
from perennial.tfrecord import bulk, example, framing


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The records of a part of a shard."""

    records: bytes
    labels: list[int]  # of those records
    rejected: list[BadImage]  # files that gave no record


def encode(images: Mapping[Split, Images], part: ShardPart) -> Encoded:
    """The records of a part's examples, in their order."""
    read = images[part.source]
    if isinstance(read, FixedSizeImages):
        batches, done = list[bytes](), 0
        for pixels in read.batches(part.indices.tolist()):
            batches.append(bulk.frame_images(pixels, part.labels[done : done + len(pixels)]))
            done += len(pixels)
        return Encoded(records=b"".join(batches), labels=part.labels.tolist(), rejected=[])
    records, labels, rejected = list[bytes](), list[int](), list[BadImage]()
    for label, image in zip(part.labels.tolist(), read(part.indices.tolist()), strict=True):
        if isinstance(image, BadImage):
            rejected.append(image)
        else:
            records.append(framing.frame(example.serialize_cached(image, label)))
            labels.append(label)
    return Encoded(records=b"".join(records), labels=labels, rejected=rejected)


def shard(
    file: Path, parts: Iterator[Encoded], classes: int
) -> tuple[manifest.Shard, Sequence[int], list[BadImage]]:
    """Writes a TFRecord file; returns its manifest entry, its examples per class and the rejected files."""
    digest, rejected = hashlib.sha256(), list[BadImage]()
    per_class = np.zeros(classes, np.int64)

    def records() -> Iterator[bytes]:
        nonlocal per_class
        for part in parts:
            per_class = per_class + np.bincount(part.labels, minlength=classes)
            rejected.extend(part.rejected)
            yield part.records

    with files.naming(file), file.open("wb") as stream:
        parallel.feed(records(), stream.write, digest.update)
        size = stream.tell()
    entry = manifest.Shard(file=file.name, examples=int(per_class.sum()), bytes=size, sha256=digest.hexdigest())
    return entry, per_class.tolist(), rejected
