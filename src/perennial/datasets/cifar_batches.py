"""The batches of CIFAR-10 in its tar files: the binary ones, and those for Python.

Binary: a record is a byte of label, then 3,072 bytes of pixels, plane by plane, red first. For Python: a
pickled dictionary with labels and an array of such rows. Source: https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perennial import archives
from perennial.archives import Member
from perennial.datasets import pickled
from perennial.datasets.dataset import Examples
from perennial.datasets.table import Table, TableImages
from perennial.errors import DataError
from perennial.images import png

SIDE = 32  # pixels
PIXEL_BYTES = 3 * SIDE * SIDE
RECORD_BYTES = 1 + PIXEL_BYTES
CIFAR100_RECORD_BYTES = 2 + PIXEL_BYTES
CHUNK_RECORDS = 1000


def examples(tar: Path, names: Sequence[str], classes: Sequence[str]) -> Examples:
    """The examples of some batches, those whose name ends in `.bin` being binary, in their order.

    Raises:
        DataError: a batch is missing or damaged, or a label is no class.
    """
    members = {member.name: member for member in archives.members(tar)}
    if missing := [name for name in names if name not in members]:
        raise DataError(f"{tar} holds no {', '.join(missing)}")
    tables, labels = [], []
    for name in names:
        read_batch = _binary_batch if name.endswith(".bin") else _python_batch
        batch, batch_labels = read_batch(tar, members[name], len(classes))
        tables.append(batch)
        labels.append(batch_labels)
    return Examples(
        labels=np.concatenate(labels),
        images=TableImages(tuple(tables), (3, SIDE, SIDE)),
        encoded_bytes=sum(map(len, labels)) * png.encoded_bytes(SIDE, SIDE, 3),
    )


def check_classes(tar: Path, folder: str, classes: Sequence[str]) -> None:
    """Refuses an archive whose own list of classes, where it has one, is another.

    Raises:
        DataError: it is another.
    """
    members = {member.name: member for member in archives.members(tar)}
    if (member := members.get(f"{folder}/batches.meta.txt")) is not None:
        names = _content(tar, member).decode("utf-8", "backslashreplace").split()
    elif (member := members.get(f"{folder}/batches.meta")) is not None:
        listed = pickled.read(_content(tar, member), f"{tar}, {member.name}").get("label_names")
        texts = listed if isinstance(listed, list) else []
        names = [text.content for text in texts if isinstance(text, pickled.Text)]
    else:
        return
    if names != list(classes):
        raise DataError(f"{tar}, {member.name}: the classes are {names}, expected {list(classes)}")


def _binary_batch(tar: Path, member: Member, classes: int) -> tuple[Table, NDArray[np.int64]]:
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
    for index in np.flatnonzero(labels >= classes)[:1]:
        raise DataError(
            f"{tar}, {member.name}: label {labels[index]} in record {index} at byte {index * RECORD_BYTES}, "
            f"expected 0 to {classes - 1}"
        )
    return Table(file=tar, offset=member.offset, rows=rows, row_bytes=RECORD_BYTES), labels


def _python_batch(tar: Path, member: Member, classes: int) -> tuple[Table, NDArray[np.int64]]:
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
        if not isinstance(label, int) or not 0 <= label < classes:
            shown = label if isinstance(label, int) else type(label).__name__
            raise DataError(f"{where}: label {shown} of image {index}, expected 0 to {classes - 1}")
    order: Literal["C", "F"] = "F" if data.fortran else "C"
    offset = member.offset + data.offset
    batch = Table(file=tar, offset=offset, rows=data.shape[0], row_bytes=PIXEL_BYTES, order=order)
    return batch, np.array(labels, np.int64)


def _content(tar: Path, member: Member) -> bytes:
    with tar.open("rb") as stream:
        stream.seek(member.offset)
        return stream.read(member.size)
