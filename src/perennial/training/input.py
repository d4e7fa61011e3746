"""What a training is fed: batches whose content is a pure function of seed, epoch and step.

However many devices and workers share them, and wherever the images are kept, together they get the same.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config as framework

from perennial.config.training import TrainConfig
from perennial.preprocessing import Pixels, randomness
from perennial.records import pipeline
from perennial.records.manifest import Manifest
from perennial.training import cache, groups
from perennial.training.cache import Table
from perennial.training.groups import Chunk
from perennial.training.order import Order, words
from perennial.training.slices import Slices

VECTOR, POSITIONS, EPOCH = (
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([], tf.int64),
)
BLOCKS_AHEAD = 8  # of encoded images: enough for the time that reading a shard takes


class Batch(NamedTuple):
    """A replica's slice of a global batch; all of a last one that is too short to be cut."""

    images: tf.Tensor  # [n, height, width, channels]: uint8 where all have one size, else float32 for the model
    labels: tf.Tensor  # int64 [n], labels_offset subtracted
    keys: tf.Tensor  # int32 [n, 2], what the distortions draw from
    positions: tf.Tensor  # int32 [n], within the global batch


class Input:
    """The training split, as batches from any step of any epoch on."""

    def __init__(
        self,
        folder: Path,
        data: Manifest,
        pixels: Pixels,
        config: TrainConfig,
        *,
        work: Path,
        labels_offset: int,
    ) -> None:
        """Decodes the images into memory or a file in `work`, if they have one size and go there.

        Raises:
            DataError: a label is below labels_offset, or a shard was changed since it was checked.
            PerennialError: there is no room for the file.
        """
        pipeline.require_labels(folder, data, "train", labels_offset)
        self._folder, self._data, self._pixels = folder, data, pixels
        self._batch_size, self._labels_offset = config.batch_size, labels_offset
        self._order = Order(data.splits["train"].shards, config.seed, config.memory_mb)
        self._table: Table | None = None
        if config.synthetic_data:
            self._table = _synthetic(pixels, config, labels=range(labels_offset, len(data.classes)))
        elif pixels.same_size:
            self._table = cache.decoded(folder, data, pixels, config, work)

    def __str__(self) -> str:
        """How well the examples are mixed, in words."""
        return self._order.quality()

    def distributed(
        self, strategy: tf.distribute.Strategy, epoch: int, skip_steps: int
    ) -> tf.distribute.DistributedDataset:
        """The batches of `batches`, a slice for each replica of a strategy, on any number of workers."""

        def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
            own = context.num_replicas_in_sync // context.num_input_pipelines
            first = context.input_pipeline_id * own
            return self.batches(
                epoch, skip_steps, replicas=range(first, first + own), of=context.num_replicas_in_sync
            )

        return strategy.distribute_datasets_from_function(pipeline)

    def iterator(
        self, strategy: tf.distribute.Strategy, epoch: int, skip_steps: int
    ) -> tf.distribute.DistributedIterator:
        """An iterator over `distributed`, whose order is a pure function without TensorFlow's doing.

        Where operations are deterministic, TensorFlow would take all parallelism and prefetching out of a
        pipeline that has a generator, as it cannot know that this one always gives the same.
        """
        deterministic = framework.is_op_determinism_enabled()
        framework.disable_op_determinism()
        try:
            return iter(self.distributed(strategy, epoch, skip_steps))
        finally:
            if deterministic:
                tf.config.experimental.enable_op_determinism()

    def batches(
        self, epoch: int, skip_steps: int, *, replicas: range = range(1), of: int = 1
    ) -> tf.data.Dataset:
        """Batch after batch from a step of an epoch on, through all epochs that follow, without end.

        Of each global batch come the slices of these replicas, out of so many, one after the other.
        """
        slices = Slices(examples=self._order.examples, batch_size=self._batch_size, replicas=replicas, of=of)
        if self._table is None:
            ready = self._decoded(slices, epoch, skip_steps)
        else:
            ready = self._gathered(self._table, slices, epoch, skip_steps)
        endless = ready.prefetch(pipeline.AHEAD * len(replicas)).apply(
            # Otherwise replicas would ask each other before every step whether there is another.
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return endless.with_options(pipeline.options())

    def naming_shards(self) -> AbstractContextManager[None]:
        """Lets what TensorFlow raises in the block because of a shard be a DataError that names it."""
        return pipeline.naming_shards(self._folder, self._data)

    def _chunks(self, slices: Slices, epoch: int, skip_steps: int) -> Iterator[Chunk]:
        """What comes, group by group."""
        done = skip_steps * self._batch_size
        for number in count(epoch):
            for group in self._order.groups(number):
                end = group.first + group.examples
                places = slices.own(np.arange(max(group.first, done), end, dtype=np.int64))
                if places.size:
                    rows = self._order.rows(number, group)[places - group.first]
                    yield Chunk(number, group, rows, (places % self._batch_size).astype(np.int32))
            done = 0

    def _gathered(self, table: Table, slices: Slices, epoch: int, skip_steps: int) -> tf.data.Dataset:
        """Batches out of the decoded images."""
        size = len(table.labels)
        with tf.device("CPU"):
            labels = tf.constant(table.labels - self._labels_offset)

        def numbers() -> Iterator[tuple[object, ...]]:
            for chunk in self._chunks(slices, epoch, skip_steps):
                yield self._order.ordinals(chunk.group)[chunk.rows], chunk.positions, chunk.epoch

        def with_keys(ordinals: tf.Tensor, positions: tf.Tensor, epoch: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # Of all examples at once: of a few, they would take longer than the images.
            return ordinals % size, positions, randomness.keys(self._order.seed, epoch, ordinals)

        def gather(rows: tf.Tensor, positions: tf.Tensor, keys: tf.Tensor) -> Batch:
            return Batch(tf.gather(table.images, rows), tf.gather(labels, rows), keys, positions)

        parts = tf.data.Dataset.from_generator(numbers, output_signature=(VECTOR, POSITIONS, EPOCH))
        return (
            parts.map(with_keys)
            .prefetch(1)  # the next epoch's order is ready when this one ends
            .rebatch(slices.sizes(skip_steps))
            .map(gather, num_parallel_calls=pipeline.THREADS, deterministic=True)
        )

    def _decoded(self, slices: Slices, epoch: int, skip_steps: int) -> tf.data.Dataset:
        """Batches out of the records, each image decoded when its turn comes."""

        def blocks() -> Iterator[groups.Block]:
            return groups.blocks(self._folder, self._order, self._chunks(slices, epoch, skip_steps))

        def with_keys(
            images: tf.Tensor, labels: tf.Tensor, ordinals: tf.Tensor, positions: tf.Tensor, epoch: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            keys = randomness.keys(self._order.seed, epoch, ordinals)
            return images, labels - self._labels_offset, keys, positions

        def prepare(encoded_and_key: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            image = pipeline.decoded(encoded_and_key[0], self._pixels)
            return image if self._pixels.same_size else self._pixels.training_one(image, encoded_and_key[1])

        def decode(images: tf.Tensor, labels: tf.Tensor, keys: tf.Tensor, positions: tf.Tensor) -> Batch:
            return Batch(pipeline.map_images(prepare, (images, keys), self._pixels), labels, keys, positions)

        signature = (tf.TensorSpec([None], tf.string), VECTOR, VECTOR, POSITIONS, EPOCH)
        parts = tf.data.Dataset.from_generator(blocks, output_signature=signature)
        return (
            parts.map(with_keys)
            .prefetch(BLOCKS_AHEAD)
            .rebatch(pipeline.DECODED)
            .map(decode, num_parallel_calls=pipeline.THREADS, deterministic=True)
            .rebatch(slices.sizes(skip_steps))
        )


def _synthetic(pixels: Pixels, config: TrainConfig, *, labels: range) -> Table:
    """As many random examples as a batch has; they come again and again."""
    shape = (config.batch_size, *pipeline.batch_shape(pixels))
    size = math.prod(shape)
    images = words(-(-size // 8), config.seed, 0, "images").view(np.uint8)[:size].reshape(shape)
    chosen = words(config.batch_size, config.seed, 0, "labels") % np.uint64(len(labels))
    with tf.device("CPU"):
        ready = images if pixels.same_size else images / np.float32(127.5) - 1
        return Table(tf.constant(ready), labels.start + chosen.astype(np.int64))
