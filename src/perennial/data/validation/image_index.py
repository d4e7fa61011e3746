"""The image index: digests and a perceptual hash of each record, to find images in old versions.

The validate stage writes it beside the record positions, from values that it computes anyway. It is small
(58 bytes for each image) and versioned, so old versions are searched without their records.
"""

import io
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.choices import SPLITS
from perennial.base.errors import DataError
from perennial.data.tfrecord.label_arrays import LabelArray

FILE = "images.npy"
ENTRY = np.dtype(
    [
        ("sha256", "u1", (32,)),  # of the image file in the record
        ("pixels", "<u8", (2,)),  # digest of size and pixels
        ("hash", "<u8"),  # perceptual
        ("tiny", "u1"),  # whether the image is too small for a meaningful hash
        ("split", "u1"),  # number in SPLITS
    ]
)
ROWS = 1 << 14  # read at once
# [N]: an entry for each record, of train, then validation, then test, in the order of `perennial show N`.
ImageIndex = NDArray[np.void]


class Collected:
    """The entries of a check, part by part, in a file without a name: memory holds a column at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._stream: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - open as long as this is
        weakref.finalize(self, self._stream.close)
        self._labels = list[LabelArray]()
        self.count = 0

    def add(self, entries: ImageIndex, labels: LabelArray) -> None:
        """Add entries with the labels of their records, as `label_arrays.packed` gives them."""
        self._stream.write(entries.tobytes())
        self._labels.append(labels)
        self.count += len(entries)

    def labels(self) -> LabelArray:
        """The labels of all records."""
        return np.concatenate(self._labels)

    def column(self, name: str) -> NDArray[Any]:
        """A field of all entries."""
        found = np.empty(self.count, ENTRY[name])
        self._stream.seek(0)
        for start in range(0, self.count, ROWS):
            rows = np.frombuffer(self._stream.read(ROWS * ENTRY.itemsize), ENTRY)
            found[start : start + len(rows)] = rows[name]
        return found

    def write(self, file: Path) -> None:
        """Write the index, as `content` does."""
        descr = np.lib.format.dtype_to_descr(ENTRY)
        self._stream.seek(0)
        with files.naming(file), file.open("wb") as target:
            header = {"descr": descr, "fortran_order": False, "shape": (self.count,)}
            np.lib.format.write_array_header_1_0(target, header)
            shutil.copyfileobj(self._stream, target)


def content(index: ImageIndex) -> bytes:
    """The file of an index."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, index, allow_pickle=False)
    return stream.getvalue()


def read(file: Path) -> ImageIndex:
    """Read the index from a file."""
    try:
        # Unlike np.load, it accepts neither archives nor pickles.
        found: ImageIndex = np.lib.format.open_memmap(file, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} is not an index of images: {error}") from error
    if found.dtype != ENTRY or found.ndim != 1 or found["split"].max(initial=0) >= len(SPLITS):
        raise DataError(f"{file} is not an index of images: it holds {found.dtype} {list(found.shape)}")
    return found
