"""tf.data pipelines over records in manifest order; shuffling is done in perennial.model.training."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.choices import Split
from perennial.base.errors import ConfigError, DataError
from perennial.data.preprocessing import ImageSpec, photographs
from perennial.data.preprocessing.photographs import UNCONVERTED
from perennial.data.records.manifest import Manifest, Shard
from perennial.data.tfrecord import example
from perennial.data.tfrecord.label_arrays import LabelArray

ENCODED, LABEL = example.ENCODED, example.LABEL
KEYS = {name: tf.io.FixedLenFeature((), kind) for name, kind in ((ENCODED, tf.string), (LABEL, tf.int64))}
SEVERAL = KEYS | {LABEL: tf.io.RaggedFeature(tf.int64)}
THREADS = len(os.sched_getaffinity(0))
AHEAD = 4  # batches that are prefetched
PARSED = 256  # records parsed at once
DECODED = 16  # images that one thread decodes at once


@dataclass(frozen=True)
class LabelMap:
    """Maps the labels of records to those of a model."""

    offset: int = 0  # classes that the model leaves out: model.labels_offset

    def __call__(self, labels: Any) -> Any:
        """Convert the records' labels to the model's; array or tensor in, same type out."""
        return labels[:, self.offset :] if len(labels.shape) == 2 else labels - self.offset

    def classes(self, data: Manifest) -> list[str]:
        """The classes of the model."""
        return data.classes[self.offset :]

    def per_class(self, data: Manifest, split: Split) -> list[int]:
        """Examples of each class of the model."""
        return data.splits[split].per_class[self.offset :]

    def require_classes(self, data: Manifest) -> None:
        """Check that the offset leaves at least two classes."""
        if len(self.classes(data)) < 2:
            raise ConfigError(
                f"model.labels_offset must leave at least two of {len(data.classes)} classes, got {self.offset}"
            )

    def require_none_below(self, folder: Path, data: Manifest, split: Split) -> None:
        """Check that no example of a split has a class that the model leaves out as its only label."""
        count = sum(data.splits[split].per_class[: self.offset]) if data.task == "multiclass" else 0
        for shard in data.splits[split].shards if count else ():
            for record, (fields, _) in enumerate(example.in_order(folder / shard.file)):
                if fields.label < self.offset:
                    raise DataError(
                        f"{folder / shard.file} record {record}: label {fields.label}, expected at least "
                        f"{self.offset}: model.labels_offset leaves out the classes before; {split} has "
                        f"{count} such examples; lower it, or convert data without them"
                    )


def batches(
    folder: Path,
    data: Manifest,
    split: Split,
    pixels: ImageSpec,
    *,
    batch_size: int,
    label_map: LabelMap,
    cache_mb: int = 0,
) -> tf.data.Dataset:
    """Images [N, height, width, channels] and the model's labels, each example once, in order.

    Labels are int64 [N], or uint8 [N, classes] of 0 and 1 where images have several. Images are the stored
    uint8 if all have one size, otherwise float32 for the model. They stay in memory for further passes if they
    take at most `cache_mb` megabytes.
    """
    label_map.require_none_below(folder, data, split)
    part = data.splits[split]

    ready = decoded_examples(folder, part.shards, pixels, batch_size, data.label_columns)
    ready = ready.map(UNCONVERTED(lambda images, labels: (images, label_map(labels))))
    spec = pixels.undistorted_as
    if part.examples * math.prod(spec.shape) * spec.dtype.size <= cache_mb * 10**6:
        ready = ready.cache()
    return ready.prefetch(AHEAD).with_options(options())


def decoded_examples(
    folder: Path, shards: Sequence[Shard], pixels: ImageSpec, batch_size: int, label_columns: int = 0
) -> tf.data.Dataset:
    """Batches of undistorted images [N, height, width, channels] and labels, in the shards' order.

    Labels are int64 [N]; with `label_columns`, which is that of the manifest: uint8 [N, columns] of 0 and 1.
    """
    records = _records(folder, *shards)
    if not pixels.same_size:
        # Photographs as float32 are large: copying them into other batches would take a fifth of the time.
        def one(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            images, labels = _parsed(record[tf.newaxis], label_columns)
            return pixels.evaluation_one(photographs.decoded(images[0], pixels)), labels[0]

        return records.map(UNCONVERTED(one), num_parallel_calls=THREADS, deterministic=True).batch(batch_size)

    def several(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = _parsed(records, label_columns)
        return photographs.stored(images, pixels), labels

    decoded = records.batch(DECODED).map(UNCONVERTED(several), num_parallel_calls=THREADS, deterministic=True)
    return decoded if batch_size == DECODED else decoded.rebatch(batch_size)


def _parsed(records: tf.Tensor, label_columns: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The encoded images of records [N] and their labels: int64 [N], or uint8 [N, columns] of 0 and 1."""
    if not label_columns:
        features = tf.io.parse_example(records, KEYS)
        return features[ENCODED], features[LABEL]
    features = tf.io.parse_example(records, SEVERAL)
    labels = features[LABEL].to_tensor(-1)  # -1 has no column
    return features[ENCODED], tf.reduce_sum(tf.one_hot(labels, label_columns, dtype=tf.uint8), axis=1)


def encoded(folder: Path, shard: Shard, label_columns: int = 0) -> tuple[LabelArray, NDArray[np.object_]]:
    """The labels of a shard's records, as in `decoded_examples`, and their encoded images, as bytes."""
    labels = [np.zeros((0, label_columns), np.uint8) if label_columns else np.zeros(0, np.int64)]
    images = [np.zeros(0, object)]
    for records in _records(folder, shard).batch(PARSED):
        parsed = _parsed(records, label_columns)
        images.append(parsed[0].numpy())
        labels.append(parsed[1].numpy())
    return np.concatenate(labels), np.concatenate(images)


def encoded_images(folder: Path, shards: Sequence[Shard]) -> tf.data.Dataset:
    """The encoded image of each record, a string, in the manifest's order."""
    records = _records(folder, *shards).batch(PARSED // 4)
    only = {ENCODED: KEYS[ENCODED]}
    return records.map(UNCONVERTED(lambda batch: tf.io.parse_example(batch, only)[ENCODED])).unbatch()


def spread(dataset: tf.data.Dataset, size: int, count: int) -> tf.data.Dataset:
    """`count` elements of a dataset of `size`, at equal distances up to its last; all if it has no more."""
    count = min(size, count)
    chosen = UNCONVERTED(lambda n, _: (n + 1) * count // size > n * count // size)
    return dataset.enumerate().filter(chosen).map(UNCONVERTED(lambda _, element: element))


def stored_images(encoded: tf.data.Dataset, channels: int) -> Iterator[tuple[bytes, NDArray[np.uint8]]]:
    """Pairs of an encoded image and its pixels, uint8 [height, width, channels]."""

    def decoded(image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return image, tf.io.decode_image(image, channels=channels, expand_animations=False)

    images = encoded.map(UNCONVERTED(decoded), num_parallel_calls=THREADS, deterministic=True)
    yield from images.with_options(untuned()).as_numpy_iterator()


@contextmanager
def naming_shards(folder: Path, data: Manifest) -> Iterator[None]:
    """Convert a TensorFlow error caused by a shard to a DataError that names the shard."""
    try:
        yield
    except tf.errors.OpError as error:
        content = type(error) is tf.errors.DataLossError
        for part in data.splits.values():
            for shard in part.shards:
                if change := _change(folder / shard.file, shard, content=content):
                    raise DataError(
                        f"{folder / shard.file} {change} since the records were checked; `dvc repro` restores "
                        "the version in dvc.lock and continues"
                    ) from error
        if any(name in str(error) for name in photographs.DECODERS) and (found := _undecodable(folder, data)):
            raise DataError(
                f"{found}; validate.decode: all finds such images before training; remove the image, or save "
                "it with another program, and run convert again"
            ) from error
        raise


def _undecodable(folder: Path, data: Manifest) -> str | None:
    """Name the first image that TensorFlow does not decode; None if it decodes all of them."""
    for part in data.splits.values():
        for shard in part.shards:
            for number, image in enumerate(encoded(folder, shard, data.label_columns)[1]):
                try:
                    tf.io.decode_image(image, expand_animations=False)
                except tf.errors.InvalidArgumentError as error:
                    reason = str(error.message).splitlines()[0].rpartition("}} ")[2]
                    return f"{folder / shard.file} record {number}: the image does not decode: {reason}"
    return None


def untuned() -> tf.data.Options:
    """No autotuning, whose thread can keep an iterator that is deleted waiting for up to a minute."""
    chosen = tf.data.Options()
    chosen.autotune.enabled = False
    return chosen


def options() -> tf.data.Options:
    """A private thread pool with one thread per core and one for reading; no autotuning during training."""
    chosen = untuned()
    chosen.threading.private_threadpool_size = THREADS + 1
    chosen.threading.max_intra_op_parallelism = 1
    return chosen


def _records(folder: Path, *shards: Shard) -> tf.data.TFRecordDataset:
    return tf.data.TFRecordDataset([str(folder / shard.file) for shard in shards])


def _change(file: Path, shard: Shard, *, content: bool) -> str | None:
    """Describe how a shard changed, None if it did not; compares the content only with `content`."""
    if not file.is_file():
        return "has vanished"
    if file.stat().st_size != shard.bytes or (content and files.sha256(file) != shard.sha256):
        return "was changed"
    return None
