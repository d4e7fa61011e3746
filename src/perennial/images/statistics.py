"""What many images are like: sizes, histograms of pixel values, brightness; and a fingerprint of each."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import PIL.Image
import xxhash
from numpy.typing import NDArray

from perennial.images import perceptual
from perennial.images.decode import Pixels, array

VALUES = 256
BINS = 32  # of mean brightness, 0..255
LARGE_PIXELS = 1 << 14  # from here on an image is worth a pass of its own


@dataclass
class Statistics:
    """Sums over images that can be added up."""

    sizes: Counter[tuple[int, int, int]] = field(default_factory=Counter)  # height, width, channels
    histograms: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # by channels: [channels, 256]
    brightness: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, other: "Statistics") -> None:
        """Adds the sums over other images."""
        self.sizes += other.sizes
        self.brightness += other.brightness
        for channels, histogram in other.histograms.items():
            self.histograms[channels] = self.histograms.get(channels, 0) + histogram


@dataclass(frozen=True)
class Fingerprints:
    """What equal and similar images have in common."""

    digests: NDArray[np.uint64]  # [N, 2], of size and pixels
    hashes: NDArray[np.uint64]  # [N], perceptual


def digest(pixels: Pixels) -> bytes:
    """128 bits that images of equal size and pixels share, and others do not."""
    height, width, channels = pixels.shape
    return xxhash.xxh3_128_digest(np.ascontiguousarray(pixels).data, height << 32 | width << 8 | channels)


def as_numbers(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    """Digests of 128 bits as uint64 [N, 2]."""
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


def summarize(images: Iterable[Pixels | PIL.Image.Image]) -> tuple[Statistics, Fingerprints]:
    """The sums over the values of some images, and the fingerprint of each, in their order."""
    statistics, digests = Statistics(), []
    alike: dict[tuple[int, ...], list[tuple[int, Pixels]]] = defaultdict(list)
    hashes: dict[int, int] = {}
    for number, image in enumerate(images):
        pixels = array(image)
        digests.append(digest(pixels))
        if isinstance(image, PIL.Image.Image) and pixels[..., 0].size >= LARGE_PIXELS:
            hashes[number] = perceptual.difference_hash(image)
            _add_large(statistics, image, pixels.shape)
        else:
            alike[pixels.shape].append((number, pixels))
    for group in alike.values():
        numbers, batch = [number for number, _ in group], np.stack([pixels for _, pixels in group])
        _add_batch(statistics, batch)
        hashes |= dict(zip(numbers, perceptual.difference_hashes(batch).tolist(), strict=True))
    in_order = np.array([hashes[number] for number in range(len(digests))], np.uint64)
    return statistics, Fingerprints(as_numbers(digests), in_order)


def _add_large(statistics: Statistics, image: PIL.Image.Image, shape: tuple[int, ...]) -> None:
    histogram = np.array(image.histogram(), np.int64).reshape(-1, VALUES)
    brightness = (histogram.sum(0) @ np.arange(VALUES)) / histogram.sum()
    one = Statistics(histograms={shape[2]: histogram}, brightness=_binned(np.array([brightness])))
    statistics.add(one)


def _add_batch(statistics: Statistics, batch: NDArray[np.uint8]) -> None:
    """Adds images of one size, uint8 [N, height, width, channels]."""
    channels = batch.shape[3]
    histogram = np.stack([np.bincount(batch[..., c].ravel(), minlength=VALUES) for c in range(channels)])
    brightness = batch.reshape(len(batch), -1).mean(1)
    statistics.add(Statistics(histograms={channels: histogram}, brightness=_binned(brightness)))


def _binned(brightness: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.bincount((brightness * BINS / VALUES).astype(np.int64), minlength=BINS)
