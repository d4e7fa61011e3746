"""A small data set for the tests of stages."""

import gzip
import struct

import numpy as np
import pytest

from perennial import files


@pytest.fixture
def write_idx():
    """Writes unsigned bytes as a gzipped IDX file."""

    def write(file, values):
        header = struct.pack(f">{1 + values.ndim}I", 0x800 | values.ndim, *values.shape)
        files.write_bytes(file, gzip.compress(header + values.tobytes(), mtime=0))

    return write


@pytest.fixture
def small(load, write_idx):
    """Parameters with raw files like MNIST's: 40 examples of 3x4 pixels to train and validate on, 20 to test.

    The classes come in turn, and an image is filled with its number; 10 examples are held out.
    """
    config = load(**{"dataset.name": "mnist", "dataset.validation_fraction": 0.25})
    for prefix, examples in (("train", 40), ("t10k", 20)):
        numbers = np.arange(examples, dtype=np.uint8)
        images = np.broadcast_to(numbers[:, None, None], (examples, 3, 4))
        write_idx(config.paths.raw / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(config.paths.raw / f"{prefix}-labels-idx1-ubyte.gz", numbers % 10)
    return config
