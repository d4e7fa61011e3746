"""MNIST: which file holds what."""

import struct

import pytest

from perennial.base.errors import DataError
from perennial.data.datasets.mnist import MNIST, read


def write(folder, prefix, labels):
    header = struct.pack(">IIII", 0x803, len(labels), 1, 1)
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes(header + bytes(len(labels)))
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(labels)) + bytes(labels))


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, "train", [5, 0, 4])
    write(tmp_path, "t10k", [7, 2])
    return tmp_path


@pytest.mark.parametrize(("split", "labels"), [("train", [5, 0, 4]), ("test", [7, 2])])
def test_a_split_is_read_from_its_own_files(folder, split, labels):
    assert read(folder).splits[split].labels.tolist() == labels


def test_the_files_that_are_read_are_those_that_are_downloaded(folder):
    assert sorted(f"{path.name}.gz" for path in folder.iterdir()) == sorted(file.name for file in MNIST.files)


@pytest.mark.parametrize("name", [file.name.removesuffix(".gz") for file in MNIST.files])
def test_a_missing_file_is_a_data_error_that_names_it(folder, name):
    (folder / name).unlink()
    with pytest.raises(DataError, match=name):
        read(folder)
