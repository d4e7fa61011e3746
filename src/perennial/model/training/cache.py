"""A cache of the decoded training split. It needs images of one size; a batch is then a single gather.

It changes neither the order nor the values.
"""

import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.config.training import TrainConfig
from perennial.base.errors import DataError
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import pipeline
from perennial.data.records.manifest import Manifest
from perennial.data.tfrecord.label_arrays import LabelArray

log = logging.getLogger(__name__)
ALIGNMENT = 64  # bytes; TensorFlow reads only arrays with this alignment
# Batches of images and labels.
Examples = Iterator[tuple[NDArray[np.uint8 | np.float32], LabelArray]]


class Table(NamedTuple):
    """Examples in CPU memory."""

    # Decoded images, uint8 [N, height, width, channels]; or features [N, ...].
    images: tf.Tensor | tuple[tf.Tensor, ...]
    labels: LabelArray  # int64 [N], or uint8 [N, classes]


def decoded(folder: Path, data: Manifest, pixels: ImageSpec, config: TrainConfig) -> Table | None:
    """Decode the training split; None if images have to be decoded each time they are used."""
    shape = (data.splits["train"].examples, *pixels.undistorted_as.shape)
    fits = math.prod(shape) <= config.memory_mb * 10**6
    if config.cache == "memory" or (config.cache == "auto" and fits):
        return _in_memory(in_order(folder, data, pixels), shape, data.label_columns)
    return None


def in_order(folder: Path, data: Manifest, pixels: ImageSpec, batch_size: int = pipeline.DECODED) -> Examples:
    """The training split in record order: as stored if all have one size, else resized without distortion."""
    part, found = data.splits["train"], 0
    examples = pipeline.decoded_examples(folder, part.shards, pixels, batch_size, data.label_columns)
    examples = examples.prefetch(pipeline.AHEAD).with_options(pipeline.options())
    with pipeline.naming_shards(folder, data):
        for images, labels in examples.as_numpy_iterator():
            found += len(labels)
            if found <= part.examples:
                yield images, labels
    if found != part.examples:
        raise DataError(
            f"{folder} has {found} training examples, expected {part.examples} as in the manifest; it was "
            "changed since the records were checked; `dvc repro` puts the version back that dvc.lock names"
        )


def _in_memory(examples: Examples, shape: tuple[int, ...], label_columns: int) -> Table:
    started, size, at = time.monotonic(), math.prod(shape), 0
    room = np.empty(size + ALIGNMENT, np.uint8)
    labels = np.empty((shape[0], label_columns), np.uint8) if label_columns else np.empty(shape[0], np.int64)
    skipped = -room.ctypes.data % ALIGNMENT
    images = room[skipped : skipped + size].reshape(shape)
    for some, theirs in examples:
        images[at : at + len(some)], labels[at : at + len(some)] = some, theirs
        at += len(some)
    seconds = time.monotonic() - started
    log.info("decoded %d images into memory in %.1f s (%.0f MB)", shape[0], seconds, size / 1e6)
    # A tensor that shares the memory; `tf.constant` would copy it.
    return Table(tf.experimental.dlpack.from_dlpack(images.__dlpack__()), labels)
