"""Read CIFAR-10 batches of the binary version from a tar file.

A record is a label byte, then 3,072 bytes of pixels, plane by plane, red first.
Source: https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.archives import Member
from perennial.data.datasets.dataset import Examples
from perennial.data.datasets.readers.fixed_size import FixedSizeImages, PixelTable
from perennial.data.images import png

SIDE = 32  # pixels
RECORD_BYTES = 1 + 3 * SIDE * SIDE
CIFAR100_RECORD_BYTES = 1 + RECORD_BYTES
CHUNK_BYTES = 1000 * RECORD_BYTES


def examples(tar: Path, names: Sequence[str], classes: Sequence[str]) -> Examples:
    """Read the examples of the named batches in the given order."""
    members = {member.name: member for member in archives.contents(tar)}
    if missing := [name for name in names if name not in members]:
        raise DataError(f"{tar} does not hold {', '.join(missing)}")
    tables, labels = [], []
    for name in names:
        batch, batch_labels = _batch(tar, members[name], len(classes))
        tables.append(batch)
        labels.append(batch_labels)
    return Examples(
        labels=np.concatenate(labels),
        images=FixedSizeImages(tuple(tables), (3, SIDE, SIDE)),
        image_bytes=np.full(sum(map(len, labels)), png.encoded_bytes(SIDE, SIDE, 3)),
        shape=(SIDE, SIDE, 3),
    )


def check_classes(tar: Path, folder: str, classes: Sequence[str]) -> None:
    """Compare the archive's own list of classes, if it has one, with the expected classes."""
    members = {member.name: member for member in archives.contents(tar)}
    if (member := members.get(f"{folder}/batches.meta.txt")) is None:
        return
    names = archives.content(tar, member).decode("utf-8", "backslashreplace").split()
    if names != list(classes):
        raise DataError(f"{tar}, {member.name}: the classes are {names}, expected {list(classes)}")


def _batch(tar: Path, member: Member, classes: int) -> tuple[PixelTable, NDArray[np.int64]]:
    rows, remainder = divmod(member.size, RECORD_BYTES)
    if remainder or not rows:
        cifar100 = bool(member.size) and not member.size % CIFAR100_RECORD_BYTES
        hint = f"; records of {CIFAR100_RECORD_BYTES} bytes are CIFAR-100's" if cifar100 else ""
        raise DataError(
            f"{tar}, {member.name}: {member.size} bytes are {rows} records of {RECORD_BYTES} bytes "
            f"and a remainder of {remainder}{hint}"
        )
    starts = range(0, member.size, CHUNK_BYTES)
    chunks = (Member(member.name, member.offset + n, min(CHUNK_BYTES, member.size - n)) for n in starts)
    read = archives.read_members(tar, chunks)
    labels = np.concatenate([np.frombuffer(chunk, np.uint8)[::RECORD_BYTES].astype(np.int64) for chunk in read])
    for index in np.flatnonzero(labels >= classes)[:1]:
        raise DataError(
            f"{tar}, {member.name}: label {labels[index]} in record {index} at byte {index * RECORD_BYTES}, "
            f"expected 0 to {classes - 1}"
        )
    return PixelTable(file=tar, offset=member.offset, rows=rows, row_bytes=RECORD_BYTES), labels
