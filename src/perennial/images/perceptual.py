"""A 64-bit fingerprint of what an image looks like: images that look alike differ in few bits.

The difference hash: the luma's means over 8 rows of 9 cells, and a bit for each cell whose right neighbour
is brighter. Source: N. Krawetz, "Kind of Like That", hackerfactor.com, 2013; the dead zone is ours.
"""

from functools import lru_cache

import numpy as np
import PIL.Image
from numpy.typing import NDArray

ROWS, COLUMNS = 8, 9
# Grey levels, 0..255, that the neighbour must be brighter by: noise and compression move flat areas by less.
DEAD_ZONE = 2
CELL_PIXELS = 8  # a side of what is left of a cell when a large image is reduced first


def difference_hashes(luma: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The fingerprints [N] of images of one size: their luma, uint8 [N, height, width].

    The upper left cell's bit is the most significant.
    """
    height, width = luma.shape[1:]
    # Whole numbers, below 2^24 and then below 2^53: exact sums, in whatever order a machine's BLAS adds them.
    rows = _overlaps(height, ROWS) @ luma.astype(np.float32)
    cells = rows.astype(np.float64) @ _overlaps(width, COLUMNS).T
    rises = np.diff(cells, axis=2) > DEAD_ZONE * height * width
    packed = np.packbits(rises.reshape(len(luma), 64), axis=1)
    return packed.view(">u8").astype(np.uint64)[:, 0]


def difference_hash(image: PIL.Image.Image) -> int:
    """The fingerprint of one image of any size and mode.

    A large one is reduced first, in a tenth of the time: a bit or two may differ from what `difference_hashes`
    gives.
    """
    factor = min(image.height // (ROWS * CELL_PIXELS), image.width // (COLUMNS * CELL_PIXELS))
    reduced = image.reduce(factor) if factor > 1 else image
    return int(difference_hashes(np.asarray(reduced.convert("L"))[np.newaxis])[0])


@lru_cache(maxsize=1024)
def _overlaps(length: int, cells: int) -> NDArray[np.float32]:
    """[cells, length]: how much of each pixel lies in each cell, a whole pixel being `cells`."""
    cell_starts = np.arange(cells)[:, np.newaxis] * length
    pixel_starts = np.arange(length) * cells
    starts = np.maximum(cell_starts, pixel_starts)
    stops = np.minimum(cell_starts + length, pixel_starts + cells)
    overlaps: NDArray[np.float32] = np.maximum(stops - starts, 0).astype(np.float32)
    return overlaps
