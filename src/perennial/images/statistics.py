"""What many images are like: sizes, histograms of pixel values, brightness; and a fingerprint of each."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import PIL.Image
import xxhash
from numpy.typing import NDArray

from perennial.images import perceptual

VALUES = 256
BINS = 32  # of mean brightness, 0..255
LARGE_PIXELS = 1 << 14  # from here on, the values of some pixels stand for all
SAMPLE_STEP = 4  # pixels, in both directions


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


def of_batch(pixels: NDArray[np.uint8]) -> tuple[Statistics, Fingerprints]:
    """Statistics and fingerprints of images of one size, uint8 [N, height, width, channels]."""
    count, height, width, channels = pixels.shape
    content, size = pixels.tobytes(), height * width * channels
    # One below the other, they are a single image to Pillow.
    mode = "L" if channels == 1 else "RGB"
    stacked = PIL.Image.frombuffer(mode, (width, count * height), content, "raw", mode, 0, 1)
    brightness = np.frombuffer(content, np.uint8).reshape(count, size).sum(1, dtype=np.uint64) / size
    digests = [
        _digest(content[start : start + size], pixels.shape[1:]) for start in range(0, len(content), size)
    ]
    luma = np.asarray(stacked.convert("L")).reshape(count, height, width)
    return (
        Statistics(histograms={channels: _histogram(stacked)}, brightness=_binned(brightness)),
        Fingerprints(_numbers(digests), perceptual.difference_hashes(luma)),
    )


def of_image(image: PIL.Image.Image) -> tuple[Statistics, Fingerprints]:
    """Statistics and fingerprint of one image; of a large one, its values are those of every 16th pixel."""
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
        Fingerprints(_numbers([digest]), np.array([perceptual.difference_hash(image)], np.uint64)),
    )


def encoded_digests(images: Iterable[bytes]) -> NDArray[np.uint64]:
    """Digests, uint64 [N, 2], of image files."""
    return _numbers([xxhash.xxh3_128_digest(encoded) for encoded in images])


def _histogram(image: PIL.Image.Image) -> NDArray[np.int64]:
    """How often each value occurs, [channels, 256]."""
    return np.array(image.histogram(), np.int64).reshape(-1, VALUES)


def _digest(content: bytes, shape: tuple[int, ...]) -> bytes:
    """128 bits that images of equal size and pixels share, and others do not."""
    height, width, channels = shape
    return xxhash.xxh3_128_digest(content, height << 32 | width << 8 | channels)


def _numbers(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


def _binned(brightness: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.bincount((brightness * BINS / VALUES).astype(np.int64), minlength=BINS)
