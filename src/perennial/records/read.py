"""Records as TensorFlow reads them, in the manifest's order; that of a training is perennial.training's."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial import files
from perennial.errors import DataError
from perennial.preprocessing import Pixels
from perennial.records.manifest import Manifest, Shard, Split

KEYS = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
}
THREADS = len(os.sched_getaffinity(0))
AHEAD = 4  # batches that are ready before they are asked for
PARSED = 256  # records parsed at once
DECODED = 16  # images that one thread decodes at once


def batches(
    folder: Path,
    data: Manifest,
    split: Split,
    pixels: Pixels,
    *,
    batch_size: int,
    labels_offset: int,
    cache_mb: int = 0,
) -> tf.data.Dataset:
    """Images [N, height, width, channels] and labels int64 [N]: each example of a split once, in order.

    Images are uint8 as they were stored where all have one size, otherwise float32 for the model. Who goes
    through them again gets them from memory if they take at most `cache_mb` megabytes.

    Raises:
        DataError: there is a label below labels_offset.
    """
    require_labels(folder, data, split, labels_offset)
    part = data.splits[split]

    def prepare(image: tf.Tensor) -> tf.Tensor:
        return image if pixels.same_size else pixels.evaluation_one(image)

    ready = decoded_examples(folder, part.shards, pixels, prepare).rebatch(batch_size)
    ready = ready.map(lambda images, labels: (images, labels - labels_offset))
    if part.examples * math.prod(batch_shape(pixels)) * (1 if pixels.same_size else 4) <= cache_mb * 10**6:
        ready = ready.cache()
    return ready.prefetch(AHEAD).with_options(options())


def decoded_examples(
    folder: Path, shards: Sequence[Shard], pixels: Pixels, prepare: Callable[[tf.Tensor], tf.Tensor]
) -> tf.data.Dataset:
    """Decoded and prepared images [n, height, width, channels] and labels int64 [n], in the shards' order."""

    def decode(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = tf.io.parse_example(records, KEYS)
        images = for_each(lambda image: prepare(decoded(image, pixels)), features["image/encoded"], pixels)
        return images, features["image/class/label"]

    records = tf.data.TFRecordDataset([str(folder / shard.file) for shard in shards])
    return records.batch(DECODED).map(decode, num_parallel_calls=THREADS, deterministic=True)


def for_each(prepare: Callable[..., tf.Tensor], elements: Any, pixels: Pixels) -> tf.Tensor:
    """The images that are made of encoded ones, which a map of a data set would take twice as long for."""
    kind = tf.uint8 if pixels.same_size else tf.float32
    return tf.map_fn(prepare, elements, fn_output_signature=tf.TensorSpec(batch_shape(pixels), kind))


def encoded(folder: Path, shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
    """The labels of a shard's records, and their encoded images, as bytes."""
    labels, images = [np.zeros(0, np.int64)], [np.zeros(0, object)]
    for records in tf.data.TFRecordDataset(str(folder / shard.file)).batch(PARSED):
        features = tf.io.parse_example(records, KEYS)
        labels.append(features["image/class/label"].numpy())
        images.append(features["image/encoded"].numpy())
    return np.concatenate(labels), np.concatenate(images)


def decoded(encoded: tf.Tensor, pixels: Pixels) -> tf.Tensor:
    """Uint8 [height, width, channels] of one encoded image, as it was stored."""
    image = tf.io.decode_image(encoded, channels=pixels.channels, expand_animations=False)
    return tf.ensure_shape(image, pixels.raw_shape)


def batch_shape(pixels: Pixels) -> tuple[int, int, int]:
    """Height, width and channels of the images in a batch: as stored where all have one size."""
    height, width, channels = pixels.raw_shape
    if not pixels.same_size or height is None or width is None:
        return pixels.model_shape
    return height, width, channels


def require_labels(folder: Path, data: Manifest, split: Split, offset: int) -> None:
    """Refuses a split with examples of classes that `model.labels_offset` leaves out.

    Raises:
        DataError: names the first of them.
    """
    count = sum(data.splits[split].per_class[:offset])
    for shard in data.splits[split].shards if count else ():
        labels, _ = encoded(folder, shard)
        below = np.flatnonzero(labels < offset)
        if below.size:
            raise DataError(
                f"{folder / shard.file} record {below[0]}: label {labels[below[0]]}, expected at least "
                f"{offset}: model.labels_offset leaves out the classes before; {split} has {count} such "
                "examples; lower it, or convert data without them"
            )


@contextmanager
def naming_shards(folder: Path, data: Manifest) -> Iterator[None]:
    """Lets what TensorFlow raises because of a shard in the block be an error that names it.

    Raises:
        DataError: a shard is missing or another than when it was checked.
    """
    try:
        yield
    except tf.errors.OpError as error:
        for part in data.splits.values():
            for shard in part.shards:
                if wrong := _change(folder / shard.file, shard, content=type(error) is tf.errors.DataLossError):
                    raise DataError(
                        f"{folder / shard.file} {wrong} since the records were checked; `dvc repro` puts the "
                        "version back that dvc.lock names, and continues"
                    ) from error
        raise


def options() -> tf.data.Options:
    """Threads of their own, one a core and one that reads; nothing is tuned while the model computes."""
    chosen = tf.data.Options()
    chosen.autotune.enabled = False
    chosen.threading.private_threadpool_size = THREADS + 1
    chosen.threading.max_intra_op_parallelism = 1
    return chosen


def _change(file: Path, shard: Shard, *, content: bool) -> str | None:
    """What happened to a shard; its content is only looked at where that is asked for."""
    if not file.is_file():
        return "has vanished"
    if file.stat().st_size != shard.bytes or (content and files.sha256(file) != shard.sha256):
        return "was changed"
    return None
