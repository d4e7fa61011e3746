"""Record shards as tf.data: batches of images and labels, their order a pure function of seed and epoch."""

import hashlib
from pathlib import Path

import tensorflow as tf

from perennial.preprocessing import Pixels
from perennial.records.manifest import Manifest, Split

# As many records are shuffled at once, still encoded; a larger split is shuffled in a window of this size
# over shards in shuffled order.
SHUFFLE_RECORDS = 65_536
KEYS = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
}


def batches(
    folder: Path,
    manifest: Manifest,
    split: Split,
    pixels: Pixels,
    *,
    batch_size: int,
    epoch_seed: int | None = None,
) -> tf.data.Dataset:
    """Batches of (images uint8 [N, height, width, channels], labels int64 [N]); the last may be smaller.

    Each example comes once, in record order, or shuffled where there is a seed.
    """
    shards = [str(folder / shard.file) for shard in manifest.splits[split].shards]
    if epoch_seed is not None:
        shards.sort(key=lambda shard: _digest(epoch_seed, Path(shard).name))
    records = tf.data.TFRecordDataset(shards)
    if epoch_seed is not None:
        records = records.shuffle(min(manifest.splits[split].examples, SHUFFLE_RECORDS), epoch_seed)

    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = tf.io.parse_single_example(record, KEYS)
        image = decoded(features["image/encoded"], pixels)
        return image, features["image/class/label"]

    examples = records.map(decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def decoded(encoded: tf.Tensor, pixels: Pixels) -> tf.Tensor:
    """Uint8 [height, width, channels] at the model's size from one encoded image."""
    image = tf.io.decode_image(encoded, channels=pixels.channels, expand_animations=False)
    resized = pixels.resize(tf.ensure_shape(image, pixels.raw_shape))
    return tf.ensure_shape(resized, pixels.model_shape)


def epoch_seed(seed: int, epoch: int) -> int:
    """The shuffle seed of an epoch, 0 .. 2^63 - 1."""
    return int.from_bytes(_digest(seed, str(epoch))[:8]) >> 1


def _digest(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed}:{text}".encode()).digest()
