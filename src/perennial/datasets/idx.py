"""The IDX format of MNIST and its relatives.

A big-endian header (two zero bytes, a type code, the number of dimensions, each dimension as uint32)
and then the values. Source: http://yann.lecun.com/exdb/mnist.
"""

import math
import struct
from pathlib import Path

import numpy as np

from perennial.datasets.dataset import Examples
from perennial.datasets.table import Table, TableImages
from perennial.errors import DataError
from perennial.images import png

UNSIGNED_BYTE = 0x08


def examples(images_file: Path, labels_file: Path, *, classes: int) -> Examples:
    """The examples of two IDX files: images uint8 [N, height, width], labels uint8 [N].

    Raises:
        DataError: a file is damaged, the counts differ or a label is no class.
    """
    shape, offset = header(images_file, dimensions=3)
    (count,), labels_offset = header(labels_file, dimensions=1)
    if shape[0] != count:
        raise DataError(
            f"{images_file} holds {shape[0]} images and {labels_file} {count} labels; "
            "expected as many of one as of the other"
        )
    if not math.prod(shape):
        raise DataError(f"{images_file} holds no pixels: its dimensions are {list(shape)}")
    labels = np.fromfile(labels_file, np.uint8, offset=labels_offset)
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        raise DataError(
            f"{labels_file}: label {labels[wrong[0]]} at index {wrong[0]}, expected 0 to {classes - 1}"
        )
    pixels = Table(file=images_file, offset=offset, rows=count, row_bytes=shape[1] * shape[2])
    return Examples(
        labels=labels.astype(np.int64),
        images=TableImages((pixels,), shape[1:]),
        encoded_bytes=shape[0] * png.encoded_bytes(shape[1], shape[2], 1),
    )


def header(file: Path, *, dimensions: int) -> tuple[tuple[int, ...], int]:
    """The shape of the unsigned bytes in an IDX file, and the offset of the first.

    Raises:
        DataError: names the file, the field, what was expected and what was found.
    """
    magic, size = UNSIGNED_BYTE << 8 | dimensions, 4 + 4 * dimensions
    try:
        with file.open("rb") as stream:
            content = stream.read(size)
        found_bytes = file.stat().st_size
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    if len(content) < size:
        raise DataError(f"{file}: {len(content)} bytes, expected a header of {size}")
    found, *shape = struct.unpack(f">{1 + dimensions}I", content)
    if found != magic:
        raise DataError(f"{file}: magic number {found} at offset 0, expected {magic}")
    expected = size + math.prod(shape)
    if found_bytes != expected:
        raise DataError(f"{file}: dimensions {shape} in the header need {expected} bytes, it has {found_bytes}")
    return tuple(shape), size
