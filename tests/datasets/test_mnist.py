"""MNIST: which file holds what."""

import gzip
import struct

import pytest

from perennial.datasets.mnist import MNIST, read
from perennial.errors import DataError


def write(folder, prefix, labels):
    header = struct.pack(">IIII", 0x803, len(labels), 1, 1)
    (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(len(labels))))
    content = struct.pack(">II", 0x801, len(labels)) + bytes(labels)
    (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, "train", [5, 0, 4])
    write(tmp_path, "t10k", [7, 2])
    return tmp_path


@pytest.mark.parametrize(("split", "labels"), [("train", [5, 0, 4]), ("test", [7, 2])])
def test_a_split_is_read_from_its_own_files(folder, split, labels):
    assert read(folder, split).labels.tolist() == labels


def test_the_files_that_are_read_are_those_that_are_downloaded(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(file.name for file in MNIST.files)


def test_a_label_beyond_nine_is_a_data_error(folder):
    write(folder, "train", [5, 10])
    with pytest.raises(DataError, match="label 10 at index 1, expected 0 to 9"):
        read(folder, "train")
