"""A 64-bit fingerprint of what an image looks like: images that look alike differ in few bits.

The difference hash: the luma's means over 8 rows of 9 cells, and a bit for each cell whose right neighbour
is brighter. Source: N. Krawetz, "Kind of Like That", hackerfactor.com, 2013; the dead zone is ours.
"""

import numpy as np
import PIL.Image
from numpy.typing import NDArray

ROWS, COLUMNS = 8, 9
# Grey levels, 0..255, that the neighbour must be brighter by: noise and compression move flat areas by less.
DEAD_ZONE = 2
LUMA = np.array([19_595, 38_470, 7_471], np.uint32)  # of R, G, B in 65,536ths: ITU-R 601, as Pillow rounds it


def difference_hashes(pixels: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The fingerprints [N] of images uint8 [N, height, width, channels] of one size, grey (1) or RGB (3)."""
    return _hashes(pixels[..., 0] if pixels.shape[3] == 1 else _luma(pixels))


def difference_hash(image: PIL.Image.Image) -> int:
    """The fingerprint of one image of any size and mode; the same as `difference_hashes` gives."""
    return int(_hashes(np.asarray(image.convert("L"))[np.newaxis])[0])


def _hashes(luma: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Uint64 [N] of luma [N, height, width], the upper left cell's bit the most significant."""
    height, width = luma.shape[1:]
    # Whole numbers, below 2^24 and then below 2^53: exact sums, in whatever order a machine's BLAS adds them.
    rows = _overlaps(height, ROWS) @ luma.astype(np.float32)
    cells = rows.astype(np.float64) @ _overlaps(width, COLUMNS).T
    rises = np.diff(cells, axis=2) > DEAD_ZONE * height * width
    packed = np.packbits(rises.reshape(len(luma), 64), axis=1)
    return packed.view(">u8").astype(np.uint64)[:, 0]


def _luma(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[N, height, width] of RGB."""
    return ((pixels @ LUMA + 0x8000) >> 16).astype(np.uint8)


def _overlaps(length: int, cells: int) -> NDArray[np.float32]:
    """[cells, length]: how much of each pixel lies in each cell, a whole pixel being `cells`."""
    cell_starts = np.arange(cells)[:, np.newaxis] * length
    pixel_starts = np.arange(length) * cells
    starts = np.maximum(cell_starts, pixel_starts)
    stops = np.minimum(cell_starts + length, pixel_starts + cells)
    overlaps: NDArray[np.float32] = np.maximum(stops - starts, 0).astype(np.float32)
    return overlaps
