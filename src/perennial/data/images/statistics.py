"""Statistics of images: sizes, histograms of pixel values, brightness; digests and perceptual hashes."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import PIL.Image
import xxhash
from numpy.typing import NDArray

from perennial.data.images import BRIGHTNESS_BINS

VALUES = 256
LARGE_PIXELS = 1 << 14  # for larger images, values are sampled
SAMPLE_STEP = 4  # pixels, in both directions
HASH_ROWS, HASH_COLUMNS = 8, 9
# Minimum difference between neighbours in grey levels, 0..255; noise and compression change flat areas by less.
DEAD_ZONE = 2
CELL_PIXELS = 8  # side of a cell, in pixels, after the first reduction of a large image


@dataclass
class Statistics:
    """Sums over images; the sums of two sets of images can be added."""

    sizes: Counter[tuple[int, int, int]] = field(default_factory=Counter)  # height, width, channels
    histograms: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # by channels: [channels, 256]
    brightness: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BRIGHTNESS_BINS, np.int64))

    def add(self, other: "Statistics") -> None:
        """Add the sums over other images."""
        self.sizes += other.sizes
        self.brightness += other.brightness
        for channels, histogram in other.histograms.items():
            self.histograms[channels] = self.histograms.get(channels, 0) + histogram


@dataclass(frozen=True)
class Fingerprints:
    """Digests that are equal for equal images, and hashes that are close for similar ones."""

    digests: NDArray[np.uint64]  # [N, 2], of size and pixels
    hashes: NDArray[np.uint64]  # [N], perceptual


def of_batch(pixels: NDArray[np.uint8]) -> tuple[Statistics, Fingerprints]:
    """Compute statistics and fingerprints of images of one size, uint8 [N, height, width, channels]."""
    count, height, width, channels = pixels.shape
    content, size = pixels.tobytes(), height * width * channels
    # Stack the images vertically, so that Pillow processes them as one.
    mode = "L" if channels == 1 else "RGB"
    stacked = PIL.Image.frombuffer(mode, (width, count * height), content, "raw", mode, 0, 1)
    brightness = np.frombuffer(content, np.uint8).reshape(count, size).sum(1, dtype=np.uint64) / size
    digests = [_digest(content[at : at + size], pixels.shape[1:]) for at in range(0, len(content), size)]
    luma = np.asarray(stacked.convert("L")).reshape(count, height, width)
    return (
        Statistics(histograms={channels: _histogram(stacked)}, brightness=_binned(brightness)),
        Fingerprints(_numbers(digests), _difference_hashes(luma)),
    )


def of_image(image: PIL.Image.Image) -> tuple[Statistics, Fingerprints]:
    """Compute statistics and fingerprint of one image; a large image is sampled at every 16th pixel."""
    content, channels = image.tobytes(), len(image.getbands())
    sampled = image
    if image.width * image.height >= LARGE_PIXELS:
        size = max(image.width // SAMPLE_STEP, 1), max(image.height // SAMPLE_STEP, 1)
        sampled = image.resize(size, PIL.Image.Resampling.NEAREST)
    histogram = _histogram(sampled)
    brightness = (histogram.sum(0) @ np.arange(VALUES)) / histogram.sum()
    digest = _digest(content, (image.height, image.width, channels))
    return (
        Statistics(histograms={channels: histogram}, brightness=_binned(np.array([brightness]))),
        Fingerprints(_numbers([digest]), _difference_hashes(_reduced(image))),
    )


def encoded_digests(images: Iterable[bytes]) -> NDArray[np.uint64]:
    """Compute digests of image files, uint64 [N, 2]."""
    return _numbers([xxhash.xxh3_128_digest(encoded) for encoded in images])


def sha256(images: Iterable[bytes]) -> NDArray[np.uint8]:
    """Compute the SHA-256 of image files, uint8 [N, 32]."""
    found = b"".join(hashlib.sha256(encoded).digest() for encoded in images)
    return np.frombuffer(found, np.uint8).reshape(-1, 32)


def _histogram(image: PIL.Image.Image) -> NDArray[np.int64]:
    """Count each pixel value, [channels, 256]."""
    return np.array(image.histogram(), np.int64).reshape(-1, VALUES)


def _digest(content: bytes, shape: tuple[int, ...]) -> bytes:
    """Compute a 128-bit digest of size and pixels."""
    height, width, channels = shape
    return xxhash.xxh3_128_digest(content, height << 32 | width << 8 | channels)


def _numbers(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


def _binned(brightness: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.bincount((brightness * BRIGHTNESS_BINS / VALUES).astype(np.int64), minlength=BRIGHTNESS_BINS)


def _difference_hashes(luma: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Difference hashes [N] (Krawetz 2013, with a dead zone) of 8 x 9 cells."""
    height, width = luma.shape[1:]
    # All sums are integers below 2^24, then 2^53, so they are exact whatever order BLAS uses.
    rows = _overlaps(height, HASH_ROWS) @ luma.astype(np.float32)
    cells = rows.astype(np.float64) @ _overlaps(width, HASH_COLUMNS).T
    rises = np.diff(cells, axis=2) > DEAD_ZONE * height * width
    packed = np.packbits(rises.reshape(len(luma), 64), axis=1)
    return packed.view(">u8").astype(np.uint64)[:, 0]


def _reduced(image: PIL.Image.Image) -> NDArray[np.uint8]:
    """The luma [1, height, width]; a large image is reduced first, which changes a bit or two of its hash."""
    factor = min(image.height // (HASH_ROWS * CELL_PIXELS), image.width // (HASH_COLUMNS * CELL_PIXELS))
    reduced = image.reduce(factor) if factor > 1 else image
    return np.asarray(reduced.convert("L"))[np.newaxis]


@lru_cache(maxsize=1024)
def _overlaps(length: int, cells: int) -> NDArray[np.float32]:
    """Return the overlap of each pixel with each cell, [cells, length]; a full pixel counts as `cells`."""
    cell_starts = np.arange(cells)[:, np.newaxis] * length
    pixel_starts = np.arange(length) * cells
    starts = np.maximum(cell_starts, pixel_starts)
    stops = np.minimum(cell_starts + length, pixel_starts + cells)
    overlaps: NDArray[np.float32] = np.maximum(stops - starts, 0).astype(np.float32)
    return overlaps
