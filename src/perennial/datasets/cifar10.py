"""CIFAR-10: 32x32 photographs in colour of ten classes, 50,000 for training and 10,000 for testing.

Formats: https://www.cs.toronto.edu/~kriz/cifar.html, the binary version and, where only that can be had, the
one for Python. Digests: of tensorflow-datasets 4.9.10 (binary), of the original file (Python).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perennial.datasets import archives, pickled
from perennial.datasets.archives import Member
from perennial.datasets.dataset import Dataset, Examples, Source, SourceFile
from perennial.errors import DataError
from perennial.images import Image, png

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
SIDE = 32  # pixels
PIXEL_BYTES = 3 * SIDE * SIDE
RECORD_BYTES = 1 + PIXEL_BYTES
CIFAR100_RECORD_BYTES = 2 + PIXEL_BYTES
CHUNK_RECORDS = 1000
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"


@dataclass(frozen=True)
class _Batch:
    """Where the pixels of a batch lie: in the last 3,072 bytes of the rows of a table."""

    offset: int  # bytes from the start of the tar file
    rows: int
    row_bytes: int
    order: Literal["C", "F"] = "C"  # F: the first index runs fastest


def read(folder: Path) -> Source:
    """Both splits in file order, from the binary version or else from the one for Python.

    Raises:
        DataError: a batch is missing or damaged, or a label is no class.
    """
    binary, python = folder / "cifar-10-binary.tar", folder / "cifar-10-python.tar"
    tar = python if python.is_file() and not binary.is_file() else binary
    top, ending, read_batch = (PYTHON, "", _python_batch) if tar is python else (BINARY, ".bin", _binary_batch)
    members = {member.name: member for member in archives.members(tar)}
    _check_classes(tar, members)

    def examples(names: tuple[str, ...]) -> Examples:
        wanted = [f"{top}/{name}{ending}" for name in names]
        if missing := [name for name in wanted if name not in members]:
            raise DataError(f"{tar} holds no {', '.join(missing)}")
        batches, labels = zip(*(read_batch(tar, members[name]) for name in wanted), strict=True)
        return Examples(
            labels=np.concatenate(labels),
            images=partial(_images, tar, batches),
            encoded_bytes=sum(map(len, labels)) * png.encoded_bytes(SIDE, SIDE, 3),
        )

    return Source(
        classes=CLASSES, splits={"train": examples(BATCHES["train"]), "test": examples(BATCHES["test"])}
    )


def _check_classes(tar: Path, members: dict[str, Member]) -> None:
    """The names of the classes are those that the labels stand for, where the archive gives them."""
    if (member := members.get(f"{BINARY}/batches.meta.txt")) is not None:
        names = _content(tar, member).decode("utf-8", "backslashreplace").split()
    elif (member := members.get(f"{PYTHON}/batches.meta")) is not None:
        listed = pickled.read(_content(tar, member), f"{tar}, {member.name}").get("label_names")
        texts = listed if isinstance(listed, list) else []
        names = [text.content for text in texts if isinstance(text, pickled.Text)]
    else:
        return
    if names != list(CLASSES):
        raise DataError(f"{tar}, {member.name}: the classes are {names}, expected {list(CLASSES)}")


def _binary_batch(tar: Path, member: Member) -> tuple[_Batch, NDArray[np.int64]]:
    rows, remainder = divmod(member.size, RECORD_BYTES)
    if remainder or not rows:
        cifar100 = bool(member.size) and not member.size % CIFAR100_RECORD_BYTES
        told = f"; records of {CIFAR100_RECORD_BYTES} bytes are CIFAR-100's" if cifar100 else ""
        raise DataError(
            f"{tar}, {member.name}: {member.size} bytes are {rows} records of {RECORD_BYTES} bytes "
            f"and a remainder of {remainder}{told}"
        )
    chunks = []
    with tar.open("rb") as stream:
        stream.seek(member.offset)
        for start in range(0, rows, CHUNK_RECORDS):
            chunk = stream.read(min(CHUNK_RECORDS, rows - start) * RECORD_BYTES)
            chunks.append(np.frombuffer(chunk, np.uint8)[::RECORD_BYTES].astype(np.int64))
    labels = np.concatenate(chunks)
    for index in np.flatnonzero(labels >= len(CLASSES))[:1]:
        raise DataError(
            f"{tar}, {member.name}: label {labels[index]} in record {index} at byte {index * RECORD_BYTES}, "
            f"expected 0 to {len(CLASSES) - 1}"
        )
    return _Batch(member.offset, rows, RECORD_BYTES), labels


def _python_batch(tar: Path, member: Member) -> tuple[_Batch, NDArray[np.int64]]:
    where = f"{tar}, {member.name}"
    found = pickled.read(_content(tar, member), where)
    data, labels = found.get("data"), found.get("labels")
    if not isinstance(data, pickled.Array) or len(data.shape) != 2 or data.shape[1] != PIXEL_BYTES:
        shape = data.shape if isinstance(data, pickled.Array) else None
        raise DataError(f"{where}: 'data' has the shape {shape}, expected [N, {PIXEL_BYTES}]")
    if not isinstance(labels, list) or len(labels) != data.shape[0]:
        number = len(labels) if isinstance(labels, list) else "no"
        raise DataError(f"{where}: {number} labels for {data.shape[0]} images")
    for index, label in enumerate(labels):
        if not isinstance(label, int) or not 0 <= label < len(CLASSES):
            raise DataError(f"{where}: label {label} of image {index}, expected 0 to {len(CLASSES) - 1}")
    order: Literal["C", "F"] = "F" if data.fortran else "C"
    return _Batch(member.offset + data.offset, data.shape[0], PIXEL_BYTES, order), np.array(labels, np.int64)


def _content(tar: Path, member: Member) -> bytes:
    with tar.open("rb") as stream:
        stream.seek(member.offset)
        return stream.read(member.size)


def _images(tar: Path, batches: Sequence[_Batch], numbers: Sequence[int]) -> Iterator[Image]:
    """The images with these numbers, counted through the batches, each read from its place in the tar file."""
    starts = np.cumsum([0, *(batch.rows for batch in batches)])
    with tar.open("rb", buffering=0) as stream:
        for number in numbers:
            batch = int(np.searchsorted(starts, number, "right")) - 1
            planes = _pixels(stream, batches[batch], int(number - starts[batch])).reshape(3, SIDE, SIDE)
            yield Image(encoded=png.encode(planes.transpose(1, 2, 0)), format="png", height=SIDE, width=SIDE)


def _pixels(stream: FileIO, batch: _Batch, row: int) -> NDArray[np.uint8]:
    """The pixels uint8 [3072] in a row."""
    if batch.order == "F":
        shape = (batch.rows, batch.row_bytes)
        return np.asarray(np.memmap(stream, np.uint8, "r", batch.offset, shape, "F")[row])
    stream.seek(batch.offset + (row + 1) * batch.row_bytes - PIXEL_BYTES)
    return np.frombuffer(stream.read(PIXEL_BYTES), np.uint8)


CIFAR10 = Dataset(
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    files=(
        SourceFile(
            name="cifar-10-binary.tar.gz",
            bytes=170_052_171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    instead=(
        SourceFile(
            name="cifar-10-python.tar.gz",
            bytes=170_498_071,
            sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    read=read,
)
