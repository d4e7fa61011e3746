"""The images of a split as the records hold them, for whoever asks a finished model."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.records.manifest import Shard

ENCODED = "image/encoded"
PARSED = 64  # records parsed at once
THREADS = len(os.sched_getaffinity(0))


def encoded_images(folder: Path, shards: Sequence[Shard]) -> tf.data.Dataset:
    """Each encoded image, a string, in the manifest's order."""
    keys = {ENCODED: tf.io.FixedLenFeature((), tf.string)}
    records = tf.data.TFRecordDataset([str(folder / shard.file) for shard in shards]).batch(PARSED)
    return records.map(lambda batch: tf.io.parse_example(batch, keys)[ENCODED]).unbatch()


def images(encoded: tf.data.Dataset, channels: int) -> Iterator[tuple[bytes, NDArray[np.uint8]]]:
    """Each image as it was stored, and decoded: uint8 [height, width, channels]."""

    def decoded(image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return image, tf.io.decode_image(image, channels=channels, expand_animations=False)

    yield from encoded.map(decoded, num_parallel_calls=THREADS, deterministic=True).as_numpy_iterator()
