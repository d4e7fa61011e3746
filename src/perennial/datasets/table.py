"""Images of one size as the rows of tables in files, which are read a few hundred at a time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perennial.images import Image, png

BATCH_ROWS = 512
SPAN_ROWS = 8 * BATCH_ROWS  # rows that are read at once although not all of them are wanted


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of bytes in a file; the pixels of an image are the last of each."""

    file: Path
    offset: int  # bytes before the first row
    rows: int
    row_bytes: int
    order: Literal["C", "F"] = "C"  # F: the first index runs fastest

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The rows with these numbers, [N, row_bytes]."""
        first, span = int(rows.min()), int(np.ptp(rows)) + 1
        if self.order == "F" or span > SPAN_ROWS:
            shape = (self.rows, self.row_bytes)
            return np.asarray(np.memmap(self.file, np.uint8, "r", self.offset, shape, self.order)[rows])
        offset = self.offset + first * self.row_bytes
        block = np.fromfile(self.file, np.uint8, span * self.row_bytes, offset=offset)
        return block.reshape(span, self.row_bytes)[rows - first]


@dataclass(frozen=True)
class TableImages:
    """Gives the images with some numbers, counted through the tables, as PNG.

    A row holds the pixels in `shape`: [height, width] or, plane by plane, [3, height, width].
    """

    tables: Sequence[Table]
    shape: tuple[int, ...]

    def __call__(self, numbers: Sequence[int]) -> Iterator[Image]:
        """The images, in the order asked for."""
        for pixels in self.batches(numbers):
            for encoded in png.encode_all(pixels):
                yield Image(encoded, "png", pixels.shape[1], pixels.shape[2])

    def batches(self, numbers: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """Their pixels, [N, height, width] or [N, height, width, 3], a few at a time."""
        starts = np.cumsum([0, *(table.rows for table in self.tables)])
        for begin in range(0, len(numbers), BATCH_ROWS):
            wanted = np.asarray(numbers[begin : begin + BATCH_ROWS])
            owners = np.searchsorted(starts, wanted, "right") - 1
            # Runs of numbers that lie in one table: mostly one.
            cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(wanted)]
            for first, after in pairwise(cuts):
                owner = owners[first]
                rows = self.tables[owner].read(wanted[first:after] - starts[owner])
                pixels = rows[:, -math.prod(self.shape) :].reshape(-1, *self.shape)
                yield pixels if len(self.shape) == 2 else pixels.transpose(0, 2, 3, 1)
