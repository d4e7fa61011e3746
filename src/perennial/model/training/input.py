"""The training input: batches whose content is a pure function of seed, epoch and step.

The global batches are the same for any number of devices and workers, and wherever the images are cached.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.data.ops import multi_device_iterator_ops as device_buffers
from tensorflow.python.framework import config as framework

from perennial.base.config.training import AugmentationConfig, TrainConfig
from perennial.data.preprocessing import ImageSpec, mixing, photographs, randomness
from perennial.data.preprocessing.photographs import UNCONVERTED
from perennial.data.records import pipeline
from perennial.data.records.manifest import Manifest, Shard
from perennial.model.training import cache
from perennial.model.training.cache import Table
from perennial.model.training.shuffle import Group, Shuffle, Slices, random_words
from perennial.model.training.teacher import Answers

VECTOR, POSITIONS = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None], tf.int32)
EPOCH = tf.TensorSpec([], tf.int64)
BLOCK = 128  # encoded examples that the generator yields at once
Read = Callable[[Shard], tuple[NDArray[Any], NDArray[np.object_]]]  # labels and encoded images of a shard
# Encoded examples: images, labels, ordinals, positions and epoch.
Block = tuple[NDArray[np.object_], NDArray[Any], NDArray[np.int64], NDArray[np.int32], int]
BLOCKS_AHEAD = 8  # enough to cover the time of reading a shard


class Batch(NamedTuple):
    """A replica's slice of a global batch; the whole batch if it is too short to be split."""

    # [n, height, width, channels], as in ImageSpec.trained_as; or features [n, ...]
    images: tf.Tensor | tuple[tf.Tensor, ...]
    labels: tf.Tensor  # of the model: int64 [n], or uint8 [n, classes] of 0 and 1
    keys: tf.Tensor  # int32 [n, 2], random keys of the augmentation
    positions: tf.Tensor  # int32 [n], within the global batch
    answers: tf.Tensor | tuple[()] = ()  # logits of the teacher, float32 [n, classes of the model]; empty: none


def model_input(batch: Batch, pixels: ImageSpec, augmentation: AugmentationConfig) -> tf.Tensor:
    """The images of a batch as the model gets them in a training step, before mixing."""
    images = batch.images
    if pixels.same_size:
        images = pixels.training(images, batch.keys, augmentation)
    else:
        images = pixels.finished(images, batch.keys)
    if augmentation.erasing:
        images = mixing.erase(images, batch.keys, probability=augmentation.erasing)
    return images


class Input:
    """The training split, as batches that can start at any step of any epoch."""

    def __init__(
        self,
        folder: Path,
        data: Manifest,
        pixels: ImageSpec,
        config: TrainConfig,
        *,
        label_map: pipeline.LabelMap,
        answers: Answers | None = None,
    ) -> None:
        """Decode the images into memory, if they have one size and fit; `answers`: of the teacher, in order."""
        label_map.require_none_below(folder, data, "train")
        self._folder, self._data, self.pixels = folder, data, pixels
        self._batch_size, self._label_map = config.batch_size, label_map
        self._augmentation = config.augmentation
        self._shuffle = Shuffle(data.splits["train"].shards, config.seed, config.memory_mb)
        self._answers: tf.Tensor | tuple[()] = ()
        if answers is not None:
            with tf.device("CPU"):
                self._answers = tf.constant(answers)
        self._table: Table | None = None
        if config.synthetic_data:
            self._table = _synthetic(pixels, config, data, first=label_map.offset)
        elif pixels.same_size:
            self._table = cache.decoded(folder, data, pixels, config)

    def __str__(self) -> str:
        """Describe how well the examples are shuffled."""
        return self._shuffle.quality()

    def iterator(
        self, strategy: tf.distribute.Strategy, epoch: int, skip_steps: int, features: Table | None = None
    ) -> tf.distribute.DistributedIterator:
        """Distribute `batches`: a slice for each replica of a strategy on any number of workers."""

        def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            own = context.num_replicas_in_sync // context.num_input_pipelines
            first = context.input_pipeline_id * own
            replicas, of = range(first, first + own), context.num_replicas_in_sync
            return self.batches(epoch, skip_steps, features, replicas=replicas, of=of)

        with _all_parallel(), _untuned_buffers():
            return iter(strategy.distribute_datasets_from_function(of_worker))

    def batches(
        self,
        epoch: int,
        skip_steps: int,
        features: Table | None = None,
        *,
        replicas: range = range(1),
        of: int = 1,
    ) -> tf.data.Dataset:
        """An endless dataset of batches that starts at a step of an epoch.

        Of each global batch it yields the slices of these `replicas`, out of `of`, one after the other. With
        `features` of the examples, in the order of `in_order`, it yields them instead of images.
        """
        slices = Slices(examples=self._shuffle.examples, batch_size=self._batch_size, replicas=replicas, of=of)
        table = features or self._table
        if table is None:
            ready = self._from_records(slices, epoch, skip_steps)
        else:
            ready = self._from_table(table, slices, epoch, skip_steps, draws=features is None)
        endless = ready.prefetch(pipeline.AHEAD * len(replicas)).apply(
            # Otherwise replicas would check before every step whether each of them has another batch.
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return endless.with_options(pipeline.options())

    def sample(self, examples: int) -> NDArray[np.float32]:
        """About `examples` model inputs of the first epoch, float32 [N, height, width, channels]."""
        count = -(-min(examples, self._shuffle.examples) // self._batch_size)
        with self.naming_shards():
            with _all_parallel():
                batches = iter(self.batches(0, 0).take(count))
            return np.concatenate([model_input(each, self.pixels, self._augmentation) for each in batches])

    def in_order(self, batch_size: int) -> Iterator[tuple[tf.Tensor, NDArray[Any]]]:
        """Undistorted images as in `Batch`, and labels of the records; each example once, in record order."""
        if self._table is None:
            yield from cache.in_order(self._folder, self._data, self.pixels, batch_size)
            return
        images, labels = self._table
        for start in range(0, len(labels), batch_size):
            yield images[start : start + batch_size], labels[start : start + batch_size]

    def naming_shards(self) -> AbstractContextManager[None]:
        """Convert a TensorFlow error that a shard causes in the block to a DataError that names the shard."""
        return pipeline.naming_shards(self._folder, self._data)

    def _keys(self, epoch: tf.Tensor, ordinals: tf.Tensor) -> tf.Tensor:
        """The random keys of these examples in an epoch, int32 [N, 2], for their distortions."""
        keys = randomness.keys(self._shuffle.seed, epoch, ordinals)
        if self._augmentation.alternating_flip:
            return randomness.alternating(keys, self._shuffle.seed, epoch, ordinals)
        return keys

    def _answers_of(self, ordinals: tf.Tensor) -> tf.Tensor | tuple[()]:
        """The teacher's answers for these examples; nothing without a teacher."""
        return tf.nest.map_structure(lambda every: tf.gather(every, ordinals), self._answers)

    def _chunks(self, slices: Slices, epoch: int, skip_steps: int) -> Iterator["_Chunk"]:
        """The examples of these slices, group by group."""
        done = skip_steps * self._batch_size
        for number in count(epoch):
            for group in self._shuffle.groups(number):
                end = group.first + group.examples
                indices = slices.own(np.arange(max(group.first, done), end, dtype=np.int64))
                if indices.size:
                    rows = self._shuffle.rows(number, group)[indices - group.first]
                    yield _Chunk(number, group, rows, (indices % self._batch_size).astype(np.int32))
            done = 0

    def _from_table(
        self, table: Table, slices: Slices, epoch: int, skip_steps: int, *, draws: bool
    ) -> tf.data.Dataset:
        """Batches gathered from the decoded images or features; without `draws`, all keys are 0."""
        size = len(table.labels)
        with tf.device("CPU"):
            labels = tf.constant(self._label_map(table.labels))

        def chunks() -> Iterator[tuple[object, ...]]:
            for chunk in self._chunks(slices, epoch, skip_steps):
                yield self._shuffle.ordinals(chunk.group)[chunk.rows], chunk.positions, chunk.epoch

        def with_keys(ordinals: tf.Tensor, positions: tf.Tensor, epoch: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # Draw for all examples at once: separate calls would take longer than gathering the images.
            keys = self._keys(epoch, ordinals) if draws else tf.zeros((tf.size(ordinals), 2), tf.int32)
            return ordinals % size, positions, keys

        def gather(rows: tf.Tensor, positions: tf.Tensor, keys: tf.Tensor) -> Batch:
            images = tf.nest.map_structure(lambda part: tf.gather(part, rows), table.images)
            return Batch(images, tf.gather(labels, rows), keys, positions, self._answers_of(rows))

        parts = tf.data.Dataset.from_generator(chunks, output_signature=(VECTOR, POSITIONS, EPOCH))
        return (
            parts.map(UNCONVERTED(with_keys))
            .prefetch(1)  # the order of the next epoch is ready when this one ends
            .rebatch(slices.sizes(skip_steps))
            .map(UNCONVERTED(gather), num_parallel_calls=pipeline.THREADS, deterministic=True)
        )

    def _from_records(self, slices: Slices, epoch: int, skip_steps: int) -> tf.data.Dataset:
        """Batches read from the records, each image decoded when it is needed."""

        def blocks() -> Iterator[Block]:
            read = partial(pipeline.encoded, self._folder, label_columns=self._data.label_columns)
            return _blocks(read, self._shuffle, self._chunks(slices, epoch, skip_steps))

        def with_keys(
            images: tf.Tensor, labels: tf.Tensor, ordinals: tf.Tensor, positions: tf.Tensor, epoch: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            given = self._answers_of(ordinals)
            return images, self._label_map(labels), self._keys(epoch, ordinals), positions, given

        def decode(images: tf.Tensor, labels: tf.Tensor, keys: tf.Tensor, *others: Any) -> Batch:
            decoded = photographs.for_training(images, keys, self.pixels, self._augmentation)
            return Batch(decoded, *tf.nest.map_structure(_copied, (labels, keys, *others)))

        labels = VECTOR
        if self._data.label_columns:
            labels = tf.TensorSpec([None, self._data.label_columns], tf.uint8)
        signature = (tf.TensorSpec([None], tf.string), labels, VECTOR, POSITIONS, EPOCH)
        parts = tf.data.Dataset.from_generator(blocks, output_signature=signature)
        return (
            parts.map(UNCONVERTED(with_keys))
            .prefetch(BLOCKS_AHEAD)
            .rebatch(pipeline.DECODED)
            .map(UNCONVERTED(decode), num_parallel_calls=pipeline.THREADS, deterministic=True)
            .rebatch(slices.sizes(skip_steps))
        )


@contextmanager
def _all_parallel() -> Iterator[None]:
    """Let iterators created in the block work in parallel even where operations are deterministic.

    TensorFlow would remove all parallelism and prefetching from a pipeline that starts with a generator, since
    it cannot know that this generator always yields the same examples.
    """
    deterministic = framework.is_op_determinism_enabled()
    framework.disable_op_determinism()
    try:
        yield
    finally:
        if deterministic:
            tf.config.experimental.enable_op_determinism()


@contextmanager
def _untuned_buffers() -> Iterator[None]:
    """Create the buffers of devices in the block without autotuning, which TensorFlow has no option for.

    There is nothing to tune in them. An iterator that is deleted waits for the thread that tunes it, and that
    thread can miss the signal to end: then the training would stand still for up to a minute.
    """
    create = device_buffers._create_device_dataset  # noqa: SLF001

    def untuned(*arguments: object) -> tf.data.Dataset:
        return create(*arguments).with_options(pipeline.untuned())

    device_buffers._create_device_dataset = untuned  # noqa: SLF001
    try:
        yield
    finally:
        device_buffers._create_device_dataset = create  # noqa: SLF001


def _copied(part: tf.Tensor) -> tf.Tensor:
    """Copy to separate memory: `rebatch` logs an error for each slice of another batch that it gets."""
    return tf.gather(part, tf.range(tf.shape(part)[0]))


def _synthetic(pixels: ImageSpec, config: TrainConfig, data: Manifest, *, first: int) -> Table:
    """One batch of random examples with classes from `first` on, repeated."""
    shape = (config.batch_size, *pixels.trained_as.shape)
    size = math.prod(shape)
    images = random_words(-(-size // 8), config.seed, 0, "images").view(np.uint8)[:size].reshape(shape)
    classes = len(data.classes)
    if data.task == "multilabel":
        drawn = random_words(config.batch_size * classes, config.seed, 0, "labels") % np.uint64(2)
        labels: NDArray[Any] = drawn.astype(np.uint8).reshape(-1, classes)
    else:
        drawn = random_words(config.batch_size, config.seed, 0, "labels") % np.uint64(classes - first)
        labels = first + drawn.astype(np.int64)
    with tf.device("CPU"):
        ready = images if pixels.trained_as.dtype == tf.uint8 else images / np.float32(127.5) - 1
        return Table(tf.constant(ready), labels)


class _Chunk(NamedTuple):
    """Examples of one group, in training order."""

    epoch: int
    group: Group
    rows: NDArray[np.int64]  # indices within the group
    positions: NDArray[np.int32]  # within the global batch


def _blocks(read: Read, shuffle: Shuffle, chunks: Iterator[_Chunk]) -> Iterator[Block]:
    """The encoded examples of the chunks, in order.

    While a group is yielded, the shards of the next are read one by one: both take the memory of one group.
    """
    group: _Shards | None = None
    following: _Shards | None = None
    for chunk, after in pairwise(chunks):
        if group is None or group.indices != chunk.group.shards:
            group = following or _Shards(read, shuffle, chunk.group)
        stays = after.group.shards == chunk.group.shards
        following = None if stays else _Shards(read, shuffle, after.group)
        labels, images = group.examples()
        ordinals = shuffle.ordinals(chunk.group)
        size = sum(shuffle.shards[index].bytes for index in chunk.group.shards)
        if following is not None:  # free what other workers take
            others = np.ones(len(images), np.bool_)
            others[chunk.rows] = False
            images[others] = None
        for start in range(0, len(chunk.rows), BLOCK):
            rows = chunk.rows[start : start + BLOCK]
            positions = chunk.positions[start : start + BLOCK]
            yield images[rows], labels[rows], ordinals[rows], positions, chunk.epoch
            if following is not None:
                images[rows] = None
                following.read_up_to(size * (start + len(rows)) // len(chunk.rows))


class _Shards:
    """The shards of a group, read into memory step by step."""

    def __init__(self, read: Read, shuffle: Shuffle, group: Group) -> None:
        self.indices, self._encoded = group.shards, read
        self._waiting: list[Shard] = [shuffle.shards[index] for index in group.shards]
        self._read: list[tuple[NDArray[Any], NDArray[np.object_]]] = []
        self._bytes = 0

    def read_up_to(self, size: float) -> None:
        """Read more shards while all that were read take at most `size` bytes."""
        while self._waiting and self._bytes + self._waiting[0].bytes <= size:
            shard = self._waiting.pop(0)
            self._read.append(self._encoded(shard))
            self._bytes += shard.bytes

    def examples(self) -> tuple[NDArray[Any], NDArray[np.object_]]:
        """Labels and encoded images, shard after shard."""
        self.read_up_to(math.inf)
        labels, images = zip(*self._read, strict=True)
        self._read = [(np.concatenate(labels), np.concatenate(images))]
        return self._read[0]
