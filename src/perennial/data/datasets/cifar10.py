"""CIFAR-10: 32x32 colour photographs of ten classes, 50,000 for training and 10,000 for testing.

A record of the binary version is a label byte, then 3,072 bytes of pixels, plane by plane, red first.
Format: https://www.cs.toronto.edu/~kriz/cifar.html. Digest: from tensorflow-datasets 4.9.10.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.archives import Member
from perennial.data.datasets.dataset import Dataset, Examples, Source, SourceFile
from perennial.data.datasets.readers.fixed_size import FixedSizeImages, PixelTable
from perennial.data.images import png

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
SIDE = 32  # pixels
RECORD_BYTES = 1 + 3 * SIDE * SIDE
CIFAR100_RECORD_BYTES = 1 + RECORD_BYTES
CHUNK_BYTES = 1000 * RECORD_BYTES


def read(folder: Path) -> Source:
    """Read both splits in file order; the archive's own list of classes, if it has one, must be these."""
    tar = folder / "cifar-10-binary.tar"
    members = {member.name: member for member in archives.contents(tar)}
    if member := members.get(f"{FOLDER}/batches.meta.txt"):
        names = archives.content(tar, member).decode("utf-8", "backslashreplace").split()
        if names != list(CLASSES):
            raise DataError(f"{tar}, {member.name}: the classes are {names}, expected {list(CLASSES)}")
    train, test = (_examples(tar, members, batches) for batches in (TRAIN, TEST))
    return Source(classes=CLASSES, splits={"train": train, "test": test})


def _examples(tar: Path, members: dict[str, Member], batches: tuple[str, ...]) -> Examples:
    """The examples of the named batches in the given order."""
    names = [f"{FOLDER}/{batch}.bin" for batch in batches]
    if missing := [name for name in names if name not in members]:
        raise DataError(f"{tar} does not hold {', '.join(missing)}")
    tables, labels = zip(*(_batch(tar, members[name]) for name in names), strict=True)
    return Examples(
        labels=np.concatenate(labels),
        images=FixedSizeImages(tables, (3, SIDE, SIDE)),
        image_bytes=np.full(sum(map(len, labels)), png.encoded_bytes(SIDE, SIDE, 3)),
        shape=(SIDE, SIDE, 3),
    )


def _batch(tar: Path, member: Member) -> tuple[PixelTable, NDArray[np.int64]]:
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
    for index in np.flatnonzero(labels >= len(CLASSES))[:1]:
        raise DataError(
            f"{tar}, {member.name}: label {labels[index]} in record {index} at byte {index * RECORD_BYTES}, "
            f"expected 0 to {len(CLASSES) - 1}"
        )
    return PixelTable(file=tar, offset=member.offset, rows=rows, row_bytes=RECORD_BYTES), labels


CIFAR10 = Dataset(
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    files=(
        SourceFile(
            name="cifar-10-binary.tar.gz",
            bytes=170_052_171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    read=read,
)
