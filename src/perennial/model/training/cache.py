"""A cache of the decoded training split. It needs images of one size; a batch is then a single gather.

The cache is in memory, or in a memory-mapped file that later runs on the same records reuse. The choice changes
neither the order nor the values.
"""

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf
import xxhash
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.config.training import TrainConfig
from perennial.base.errors import DataError, PerennialError
from perennial.base.processes import locks
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest, pipeline
from perennial.data.records.manifest import Manifest

log = logging.getLogger(__name__)
FOLDER = "cache"  # in paths.work
IMAGES, LABELS, FACTS = "images.uint8", "labels.int64", "cache.json"
FORMAT = 1  # version of these files and of how images are decoded
ALIGNMENT = 64  # bytes; TensorFlow reads only arrays with this alignment
# Batches of images and labels.
Examples = Iterator[tuple[NDArray[np.uint8 | np.float32], NDArray[np.int64]]]
Where = Literal["memory", "disk", "none"]


class Table(NamedTuple):
    """Examples in CPU memory."""

    # Decoded images, uint8 [N, height, width, channels]; or features [N, ...].
    images: tf.Tensor | tuple[tf.Tensor, ...]
    labels: NDArray[np.int64]  # [N]


def decoded(folder: Path, data: Manifest, pixels: ImageSpec, config: TrainConfig, work: Path) -> Table | None:
    """Decode the training split into the cache; None if images have to be decoded each time they are used.

    Removes cache files of other records.
    """
    cache, examples = work / FOLDER, in_order(folder, data, pixels)
    shape = (data.splits["train"].examples, *pixels.undistorted_as.shape)
    key = f"{manifest.digest(folder)} train {shape} {FORMAT}"
    file = cache / f"train-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    # Workers on one machine share the file, and the first one writes it.
    with locks.held(cache / "lock", "train", busy="another process decodes images", timeout_s=-1):
        for path in cache.iterdir():
            if path.is_dir() and file.name not in path.name:
                shutil.rmtree(path)
        where = choose(config, size=math.prod(shape), kept=file.is_dir(), free=shutil.disk_usage(cache).free)
        if where == "disk":
            return _on_disk(file, examples, shape)
    return _in_memory(examples, shape) if where == "memory" else None


def choose(config: TrainConfig, *, size: int, kept: bool, free: int) -> Where:
    """Choose where to keep `size` bytes; `kept`: a cache file exists; `free`: free bytes on the disk."""
    if config.cache != "auto":
        return config.cache
    if size <= config.memory_mb * 10**6:
        return "memory"
    return "disk" if kept or free >= 2 * size else "none"


def in_order(folder: Path, data: Manifest, pixels: ImageSpec, batch_size: int = pipeline.DECODED) -> Examples:
    """The training split in record order: as stored if all have one size, else resized without distortion."""
    part, found = data.splits["train"], 0
    examples = pipeline.decoded_examples(folder, part.shards, pixels, batch_size)
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


def _in_memory(examples: Examples, shape: tuple[int, ...]) -> Table:
    started, size, at = time.monotonic(), math.prod(shape), 0
    room, labels = np.empty(size + ALIGNMENT, np.uint8), np.empty(shape[0], np.int64)
    skipped = -room.ctypes.data % ALIGNMENT
    images = room[skipped : skipped + size].reshape(shape)
    for some, theirs in examples:
        images[at : at + len(some)], labels[at : at + len(some)] = some, theirs
        at += len(some)
    seconds = time.monotonic() - started
    log.info("decoded %d images into memory in %.1f s (%.0f MB)", shape[0], seconds, size / 1e6)
    return Table(_shared(images), labels)


def _on_disk(file: Path, examples: Examples, shape: tuple[int, ...]) -> Table:
    started, size = time.monotonic(), math.prod(shape)
    if not _is_valid(file, size):
        try:
            with files.new_folder(file) as new:
                _write(new, examples)
        except OSError as error:
            raise PerennialError(
                f"{file} cannot be written: {error.strerror}; it takes {size / 1e6:.0f} MB, "
                f"{shutil.disk_usage(file.parent).free / 1e6:.0f} MB are free; nothing was kept; "
                "make room, or set train.cache to none or memory"
            ) from error
    log.info("%d decoded images in %s, ready after %.1f s", shape[0], file, time.monotonic() - started)
    # Copy on write: NumPy can write to it, but a write would stay in this process.
    images = np.memmap(file / IMAGES, np.uint8, "c", shape=shape)
    return Table(_shared(images), np.fromfile(file / LABELS, "<i8"))


def _write(new: Path, examples: Examples) -> None:
    digests = xxhash.xxh3_128(), xxhash.xxh3_128()
    with (new / IMAGES).open("wb") as image_file, (new / LABELS).open("wb") as label_file:
        for images, labels in examples:
            parts = (images, labels.astype("<i8"))
            for stream, digest, part in zip((image_file, label_file), digests, parts, strict=True):
                # Write through the stream, not the map: a full disk is then an error instead of a fatal signal.
                stream.write(part.data)
                digest.update(part.data)
    image_digest, label_digest = (digest.hexdigest() for digest in digests)
    files.write_json(new / FACTS, {IMAGES: image_digest, LABELS: label_digest})


def _is_valid(file: Path, size: int) -> bool:
    """Whether the files exist and are unchanged."""
    try:
        facts = json.loads((file / FACTS).read_bytes())
        same = all(_digest(file / name) == facts[name] for name in (IMAGES, LABELS))
        return same and (file / IMAGES).stat().st_size == size
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, xxhash.xxh3_128).hexdigest()


def _shared(images: NDArray[np.uint8]) -> tf.Tensor:
    """A tensor that shares the memory; `tf.constant` would copy it and read the whole mapped file."""
    return tf.experimental.dlpack.from_dlpack(images.__dlpack__())
