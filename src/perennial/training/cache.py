"""A cache of the decoded training split, if its images have one size: a batch is then one gather.

It lies in memory, or in a memory-mapped file that later runs on the same records use again. The choice changes
neither the order nor a value.
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

from perennial import files
from perennial.config.training import TrainConfig
from perennial.errors import DataError, PerennialError
from perennial.preprocessing import ImageSpec
from perennial.records import manifest, pipeline
from perennial.records.manifest import Manifest
from perennial.runtime import locks

log = logging.getLogger(__name__)
FOLDER = "cache"  # in paths.work
IMAGES, LABELS, FACTS = "images.uint8", "labels.int64", "cache.json"
FORMAT = 1  # of these files and of how images are decoded
ALIGNMENT = 64  # bytes; TensorFlow reads no array that begins elsewhere
CHUNK_BYTES = 1 << 24
Bytes = NDArray[np.uint8]
Where = Literal["memory", "disk", "none"]


class Table(NamedTuple):
    """Decoded examples in CPU memory."""

    images: tf.Tensor  # uint8 [N, height, width, channels]
    labels: NDArray[np.int64]  # [N]


def decoded(folder: Path, data: Manifest, pixels: ImageSpec, config: TrainConfig, work: Path) -> Table | None:
    """Decode the training split; None if each image has to be decoded when it is used.

    Removes files of other records.

    Raises:
        DataError: the records no longer match the manifest.
        PerennialError: the disk has no room for the file.
    """
    cache = work / FOLDER
    shape = (data.splits["train"].examples, *pipeline.batch_shape(pixels))
    file = cache / _name(folder, shape)
    # Workers on one machine share it, and the first makes the file.
    with locks.held(cache / "lock", "train", busy="another process decodes images", timeout_s=-1):
        for path in cache.iterdir():
            if path.is_dir() and file.name not in path.name:
                shutil.rmtree(path)
        where = choose(config, size=math.prod(shape), kept=file.is_dir(), free=shutil.disk_usage(cache).free)
        if where == "disk":
            return _on_disk(file, folder, data, pixels, shape)
    return _in_memory(folder, data, pixels, shape) if where == "memory" else None


def choose(config: TrainConfig, *, size: int, kept: bool, free: int) -> Where:
    """Where to keep `size` bytes of images; `kept`: a file of them exists; the disk has `free` bytes."""
    if config.cache != "auto":
        return config.cache
    if size <= config.memory_mb * 10**6:
        return "memory"
    return "disk" if kept or free >= 2 * size else "none"


def _name(folder: Path, shape: tuple[int, ...]) -> str:
    said = f"{manifest.digest(folder)} train {shape} {FORMAT}"
    return f"train-{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def _in_memory(folder: Path, data: Manifest, pixels: ImageSpec, shape: tuple[int, ...]) -> Table:
    started, size = time.monotonic(), math.prod(shape)
    room = np.empty(size + ALIGNMENT, np.uint8)
    skipped = -room.ctypes.data % ALIGNMENT
    images = room[skipped : skipped + size].reshape(shape)
    labels, at = np.empty(shape[0], np.int64), 0
    for some, theirs in _decoded(folder, data, pixels):
        images[at : at + len(some)], labels[at : at + len(some)] = some, theirs
        at += len(some)
    seconds = time.monotonic() - started
    log.info("decoded %d images into memory in %.1f s (%.0f MB)", shape[0], seconds, size / 1e6)
    return Table(_shared(images), labels)


def _on_disk(file: Path, folder: Path, data: Manifest, pixels: ImageSpec, shape: tuple[int, ...]) -> Table:
    started, size = time.monotonic(), math.prod(shape)
    if not _is_valid(file, size):
        try:
            with files.new_folder(file) as new:
                _write(new, _decoded(folder, data, pixels))
        except OSError as error:
            raise PerennialError(
                f"{file} cannot be written: {error.strerror}; it takes {size / 1e6:.0f} MB, "
                f"{shutil.disk_usage(file.parent).free / 1e6:.0f} MB are free; nothing was kept; "
                "make room, or set train.cache to none or memory"
            ) from error
    log.info("%d decoded images in %s, ready after %.1f s", shape[0], file, time.monotonic() - started)
    # Writable to NumPy, which shares nothing else; a write would stay in this process.
    images = np.memmap(file / IMAGES, np.uint8, "c", shape=shape)
    return Table(_shared(images), np.fromfile(file / LABELS, "<i8"))


def _decoded(folder: Path, data: Manifest, pixels: ImageSpec) -> Iterator[tuple[Bytes, NDArray[np.int64]]]:
    """The images and labels of the training split, some at a time.

    Raises:
        DataError: there are not as many as in the manifest.
    """
    part, found = data.splits["train"], 0
    # As they are, since they have one size.
    examples = pipeline.decoded_examples(folder, part.shards, pixels, lambda image: image)
    examples = examples.prefetch(pipeline.AHEAD)
    with pipeline.naming_shards(folder, data):
        for images, labels in examples.with_options(pipeline.options()).as_numpy_iterator():
            found += len(labels)
            if found <= part.examples:
                yield images, labels
    if found != part.examples:
        raise DataError(
            f"{folder} has {found} training examples, expected {part.examples} as in the manifest; it was "
            "changed since the records were checked; `dvc repro` puts the version back that dvc.lock names"
        )


def _write(new: Path, examples: Iterator[tuple[Bytes, NDArray[np.int64]]]) -> None:
    digests = {IMAGES: xxhash.xxh3_128(), LABELS: xxhash.xxh3_128()}
    with (new / IMAGES).open("wb") as image_file, (new / LABELS).open("wb") as label_file:
        for images, labels in examples:
            # Written, not through the map: a full disk is then an error and not a signal that kills.
            for stream, name, values in (
                (image_file, IMAGES, images),
                (label_file, LABELS, labels.astype("<i8")),
            ):
                stream.write(values.data)
                digests[name].update(values.data)
    files.write_json(new / FACTS, {name: digest.hexdigest() for name, digest in digests.items()})


def _is_valid(file: Path, size: int) -> bool:
    """Whether the files exist and are unchanged."""
    try:
        facts = json.loads((file / FACTS).read_bytes())
        sizes = {name: (file / name).stat().st_size for name in (IMAGES, LABELS)}
        return sizes[IMAGES] == size and all(_digest(file / name) == facts[name] for name in sizes)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _digest(file: Path) -> str:
    found = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


def _shared(images: Bytes) -> tf.Tensor:
    """A tensor over the same memory: `tf.constant` would copy it, and read the whole file of a map."""
    return tf.experimental.dlpack.from_dlpack(images.__dlpack__())
