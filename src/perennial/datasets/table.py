"""Images of one size as the rows of tables in files, which are read a few hundred at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perennial.images import Image, png

BATCH_ROWS = 128
SPAN_ROWS = 32 * BATCH_ROWS  # rows that are read at once although not all of them are wanted


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


def images(tables: Sequence[Table], shape: tuple[int, ...], numbers: Sequence[int]) -> Iterator[Image]:
    """The images with these numbers, counted through the tables, as PNG.

    A row holds the pixels in `shape`: [height, width] or, plane by plane, [3, height, width].
    """
    starts = np.cumsum([0, *(table.rows for table in tables)])
    height, width = shape[-2:]
    for begin in range(0, len(numbers), BATCH_ROWS):
        wanted = np.asarray(numbers[begin : begin + BATCH_ROWS])
        pixels = np.empty((len(wanted), *shape), np.uint8)
        owners = np.searchsorted(starts, wanted, "right") - 1
        for owner in np.flatnonzero(np.bincount(owners)).tolist():
            rows = tables[owner].read(wanted[owners == owner] - starts[owner])
            pixels[owners == owner] = rows[:, -pixels[0].size :].reshape(-1, *shape)
        for encoded in png.encode_all(pixels if len(shape) == 2 else pixels.transpose(0, 2, 3, 1)):
            yield Image(encoded, "png", height, width)
