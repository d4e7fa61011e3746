"""UCI digits: the file inside scikit-learn and what is read from it."""

import gzip
import io
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import PIL.Image
import pytest

from perennial import files
from perennial.datasets.digits import DIGITS, read
from perennial.errors import DataError

NAME = DIGITS.files[0].name
INSTALLED = Path(unquote(urlsplit(DIGITS.mirrors[0]).path)) / NAME


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    raw = tmp_path_factory.mktemp("raw")
    shutil.copy(INSTALLED, raw)
    return raw


@pytest.fixture
def damage(tmp_path):
    """A folder whose table has another value in a row and column."""

    def change(row, column, value):
        rows = [line.split(",") for line in gzip.decompress(INSTALLED.read_bytes()).decode().splitlines()]
        rows[row][column] = value
        table = "\n".join(",".join(each) for each in rows)
        (tmp_path / NAME).write_bytes(gzip.compress(table.encode()))
        return tmp_path

    return change


def pixels(image):
    return np.asarray(PIL.Image.open(io.BytesIO(image.encoded)))


def test_the_installed_file_has_the_pinned_digest():
    assert files.sha256(INSTALLED) == DIGITS.files[0].sha256


@pytest.mark.parametrize(("split", "examples"), [("train", 1438), ("test", 359)])
def test_every_fifth_digit_is_in_the_test_split(folder, split, examples):
    assert len(read(folder, split).labels) == examples


@pytest.mark.parametrize(
    ("split", "labels"),
    [("train", [0, 1, 2, 3, 5, 6, 7, 8, 0, 1, 2, 3]), ("test", [4, 9, 4, 9, 4, 9])],
)
def test_digits_come_in_the_order_of_the_file(folder, split, labels):
    assert read(folder, split).labels[: len(labels)].tolist() == labels


def test_every_class_is_in_both_splits(folder):
    assert [np.unique(read(folder, split).labels).tolist() for split in ("train", "test")] == [
        list(range(10))
    ] * 2


def test_ink_is_stretched_to_the_whole_range_of_pixels(folder):
    first = pixels(read(folder, "train").image(0))
    assert first[:2].tolist() == [[0, 0, 80, 207, 143, 16, 0, 0], [0, 0, 207, 239, 159, 239, 80, 0]]


def test_an_image_says_its_size(folder):
    image = read(folder, "test").image(358)
    assert (image.format, image.height, image.width, pixels(image).shape) == ("png", 8, 8, (8, 8))


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match=NAME):
        read(tmp_path, "train")


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", INSTALLED.read_bytes()[:-20], gzip.compress(b"one,two"), gzip.compress(b"\xff\xfe")],
    ids=["empty", "no gzip", "cut", "words", "binary"],
)
def test_a_damaged_file_is_a_data_error_that_names_it(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataError, match=NAME):
        read(tmp_path, "train")


def test_a_table_of_another_size_is_told_with_both_sizes(tmp_path):
    (tmp_path / NAME).write_bytes(gzip.compress(b"1,2\n3,4\n"))
    with pytest.raises(DataError, match=r"table of \(2, 2\), expected \(1797, 65\)"):
        read(tmp_path, "train")


@pytest.mark.parametrize("ink", ["17", "-1", "300", "0.5"])
def test_ink_outside_its_levels_is_a_data_error(damage, ink):
    with pytest.raises(DataError, match=NAME):
        read(damage(row=0, column=3, value=ink), "train")


@pytest.mark.parametrize("label", ["10", "-1", "0.5"])
def test_a_label_that_is_no_class_is_a_data_error(damage, label):
    with pytest.raises(DataError, match=NAME):
        read(damage(row=0, column=64, value=label), "train")
