"""The IDX format of MNIST and its relatives.

A big-endian header (two zero bytes, a type code, the number of dimensions, each dimension as uint32)
and then the values. Source: http://yann.lecun.com/exdb/mnist.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.images import png
from perennial.datasets.dataset import Examples
from perennial.errors import DataError
from perennial.images import Image

UNSIGNED_BYTE = 0x08


def examples(images_file: Path, labels_file: Path, *, classes: int) -> Examples:
    """The examples of two gzipped IDX files: images uint8 [N, height, width], labels uint8 [N].

    Raises:
        DataError: a file is damaged, the counts differ or a label is no class.
    """
    images, labels = read(images_file, dimensions=3), read(labels_file, dimensions=1)
    if len(images) != len(labels):
        raise DataError(
            f"{images_file} holds {len(images)} images and {labels_file} {len(labels)} labels; "
            "expected as many of one as of the other"
        )
    if not images.size:
        raise DataError(f"{images_file} holds no pixels: its dimensions are {list(images.shape)}")
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        raise DataError(
            f"{labels_file}: label {labels[wrong[0]]} at index {wrong[0]}, expected 0 to {classes - 1}"
        )

    def image(index: int) -> Image:
        height, width = images.shape[1:]
        return Image(encoded=png.encode(images[index]), format="png", height=height, width=width)

    return Examples(labels=labels.astype(np.int64), image=image)


def read(file: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """The unsigned bytes in a gzipped IDX file, with that number of dimensions.

    Raises:
        DataError: names the file, the field, what was expected and what was found. The gzip stream
            is read to its end, because only there stands its checksum.
    """
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} is no whole gzip file: {error}") from error
    magic, header = UNSIGNED_BYTE << 8 | dimensions, 4 + 4 * dimensions
    if len(content) < header:
        raise DataError(f"{file}: {len(content)} bytes, expected a header of {header}")
    found, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    if found != magic:
        raise DataError(f"{file}: magic number {found} at offset 0, expected {magic}")
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise DataError(
            f"{file}: dimensions {shape} in the header need {expected} bytes, it has {len(content)}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
