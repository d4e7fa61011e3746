"""Examples into the bytes of records, part by part, so that memory does not grow with the data set."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perennial import files
from perennial.datasets.dataset import Images, Split
from perennial.datasets.table import TableImages
from perennial.images import BadImage
from perennial.records import manifest
from perennial.records.plan import Chunk
from perennial.runtime import parallel
from perennial.tfrecord import example, framing, stacks


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The records of a chunk."""

    records: bytes
    labels: list[int]  # of those records
    rejected: list[BadImage]  # files that gave no record


def encode(images: Mapping[Split, Images], chunk: Chunk) -> Encoded:
    """The records of a chunk's examples, in their order."""
    read = images[chunk.source]
    if isinstance(read, TableImages):
        return _of_tables(read, chunk)
    parts: list[bytes] = []
    labels: list[int] = []
    rejected: list[BadImage] = []
    serialize = example.Serializer()
    for label, image in zip(chunk.labels.tolist(), read(chunk.numbers.tolist()), strict=True):
        if isinstance(image, BadImage):
            rejected.append(image)
        else:
            parts.append(framing.frame(serialize(image, label)))
            labels.append(label)
    return Encoded(records=b"".join(parts), labels=labels, rejected=rejected)


def _of_tables(images: TableImages, chunk: Chunk) -> Encoded:
    """As `encode`, for images that are pixels already and of one size."""
    parts, done = list[bytes](), 0
    for pixels in images.batches(chunk.numbers.tolist()):
        parts.append(stacks.records(pixels, chunk.labels[done : done + len(pixels)]))
        done += len(pixels)
    return Encoded(records=b"".join(parts), labels=chunk.labels.tolist(), rejected=[])


def shard(
    file: Path, parts: Iterator[Encoded], classes: int
) -> tuple[manifest.Shard, Sequence[int], list[BadImage]]:
    """Writes a TFRecord file; gives its manifest entry, its examples per class and the rejected files."""
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
