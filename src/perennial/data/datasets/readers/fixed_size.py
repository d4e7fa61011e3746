"""Read images of one size from pixel tables: IDX files, CSV files of integers, rows of bytes."""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.errors import DataError
from perennial.data.datasets.dataset import Examples
from perennial.data.images import Image, png

BATCH_ROWS = 512
UNSIGNED_BYTE = 0x08


@dataclass(frozen=True, kw_only=True)
class PixelTable:
    """Rows of bytes in a file; each row ends with the pixels of an image."""

    file: Path
    offset: int  # bytes before the first row
    rows: int
    row_bytes: int

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Read the rows with these indices, [N, row_bytes]."""
        shape = (self.rows, self.row_bytes)
        return np.asarray(np.memmap(self.file, np.uint8, "r", self.offset, shape)[rows])


@dataclass(frozen=True)
class FixedSizeImages:
    """Encode rows as PNG, by index over all tables; `shape`: [height, width] or [3, height, width]."""

    tables: Sequence[PixelTable]
    shape: tuple[int, ...]

    def __call__(self, indices: Sequence[int]) -> Iterator[Image]:
        """Yield the images in the order of the indices."""
        for pixels in self.batches(indices):
            for encoded in png.encode_all(pixels):
                yield Image(encoded, "png", pixels.shape[1], pixels.shape[2])

    def batches(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """Yield the pixels in batches, [N, height, width] or [N, height, width, 3]."""
        starts = np.cumsum([0, *(table.rows for table in self.tables)])
        for begin in range(0, len(indices), BATCH_ROWS):
            chosen = np.asarray(indices[begin : begin + BATCH_ROWS])
            owners = np.searchsorted(starts, chosen, "right") - 1
            # Split the indices into runs within one table; usually there is a single run.
            cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(chosen)]
            for first, after in pairwise(cuts):
                owner = owners[first]
                rows = self.tables[owner].read(chosen[first:after] - starts[owner])
                pixels = rows[:, -math.prod(self.shape) :].reshape(-1, *self.shape)
                yield pixels if len(self.shape) == 2 else pixels.transpose(0, 2, 3, 1)


def idx_examples(images_file: Path, labels_file: Path, *, classes: int) -> Examples:
    """Read examples from two IDX files, MNIST's format: images uint8 [N, height, width], labels uint8 [N]."""
    shape, offset = idx_header(images_file, dimensions=3)
    (count,), labels_offset = idx_header(labels_file, dimensions=1)
    if shape[0] != count:
        raise DataError(f"{images_file} holds {shape[0]} images and {labels_file} {count} labels")
    if not math.prod(shape):
        raise DataError(f"{images_file} holds no pixels: its dimensions are {list(shape)}")
    labels = np.fromfile(labels_file, np.uint8, offset=labels_offset)
    for index in np.flatnonzero(labels >= classes)[:1]:
        raise DataError(f"{labels_file}: label {labels[index]} at index {index}, expected 0 to {classes - 1}")
    pixels = PixelTable(file=images_file, offset=offset, rows=count, row_bytes=shape[1] * shape[2])
    return Examples(
        labels=labels,
        images=FixedSizeImages((pixels,), shape[1:]),
        image_bytes=np.broadcast_to(png.encoded_bytes(shape[1], shape[2], 1), count),
        shape=(shape[1], shape[2], 1),
    )


def idx_header(file: Path, *, dimensions: int) -> tuple[tuple[int, ...], int]:
    """Read a big-endian IDX header: the shape of the unsigned bytes and the offset of the first one."""
    magic, size = UNSIGNED_BYTE << 8 | dimensions, 4 + 4 * dimensions
    try:
        with file.open("rb") as stream:
            content = stream.read(size)
        found_bytes = file.stat().st_size
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    if len(content) < size:
        raise DataError(f"{file}: {len(content)} bytes, expected a header of {size}")
    found, *shape = struct.unpack(f">{1 + dimensions}I", content)
    if found != magic:
        raise DataError(f"{file}: magic number {found} at offset 0, expected {magic}")
    expected = size + math.prod(shape)
    if found_bytes != expected:
        raise DataError(f"{file}: dimensions {shape} in the header need {expected} bytes, it has {found_bytes}")
    return tuple(shape), size


def read_csv(file: Path, *, rows: int, maxima: Sequence[int]) -> NDArray[np.int64]:
    """Read a CSV file of integers, [rows, columns]; the values of column N are 0 .. maxima[N]."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        table = np.array([line.split(",") for line in lines], np.float64)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is not a table of numbers: {error}") from error
    if table.shape != (rows, len(maxima)):
        raise DataError(f"{file}: table of {table.shape}, expected {(rows, len(maxima))}")
    wrong = np.argwhere(~((table >= 0) & (table <= np.array(maxima)) & (table == np.floor(table))))
    if wrong.size:
        line, column = wrong[0]
        raise DataError(
            f"{file}: {table[line, column]} in line {line + 1}, column {column + 1}; "
            f"expected an integer from 0 to {maxima[column]}"
        )
    return table.astype(np.int64)
