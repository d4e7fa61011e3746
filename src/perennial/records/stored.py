"""The images of a split as the records hold them, for whoever asks a finished model."""

import os
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from perennial.records.manifest import Shard

ENCODED = "image/encoded"
PARSED = 64  # records parsed at once
THREADS = len(os.sched_getaffinity(0))


def encoded_images(folder: Path, shards: Sequence[Shard]) -> tf.data.Dataset:
    """Each encoded image, a string, in the manifest's order."""
    keys = {ENCODED: tf.io.FixedLenFeature((), tf.string)}
    records = tf.data.TFRecordDataset([str(folder / shard.file) for shard in shards]).batch(PARSED)
    return records.map(lambda batch: tf.io.parse_example(batch, keys)[ENCODED]).unbatch()


def raw_image(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    """Uint8 [height, width, channels] of one encoded image."""
    return tf.io.decode_image(encoded, channels=channels, expand_animations=False)
