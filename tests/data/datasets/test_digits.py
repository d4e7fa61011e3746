"""UCI digits: the file inside scikit-learn and what is read from it."""

import gzip
import io
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import PIL.Image
import pytest

from perennial.base import files
from perennial.base.errors import DataError
from perennial.data.datasets.digits import DIGITS, read
from perennial.data.images import Image

INSTALLED = Path(unquote(urlsplit(DIGITS.mirrors[0]).path)) / DIGITS.files[0].name
TABLE = gzip.decompress(INSTALLED.read_bytes())
NAME = "digits.csv"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    (folder / NAME).write_bytes(TABLE)
    return read(folder)


@pytest.fixture
def damage(tmp_path):
    """A folder whose table has another value in a row and column."""

    def change(row, column, value):
        rows = [line.split(",") for line in TABLE.decode().splitlines()]
        rows[row][column] = value
        (tmp_path / NAME).write_text("\n".join(",".join(each) for each in rows))
        return tmp_path

    return change


def test_the_installed_file_is_the_pinned_one():
    (pinned,) = DIGITS.files
    assert (files.sha256(INSTALLED), INSTALLED.stat().st_size) == (pinned.sha256, pinned.bytes)


@pytest.mark.parametrize(
    ("split", "examples", "labels"),
    [("train", 1438, [0, 1, 2, 3, 5, 6, 7, 8, 0, 1, 2, 3]), ("test", 359, [4, 9, 4, 9, 4, 9])],
)
def test_every_fifth_digit_is_in_the_test_split_in_the_order_of_the_file(source, split, examples, labels):
    found = source.splits[split].labels
    assert (len(found), found[: len(labels)].tolist()) == (examples, labels)


def test_ink_is_stretched_to_the_whole_range_of_pixels(source):
    (image,) = source.splits["train"].images([0])
    first = np.asarray(PIL.Image.open(io.BytesIO(image.encoded)))
    assert first[:2].tolist() == [[0, 0, 80, 207, 143, 16, 0, 0], [0, 0, 207, 239, 159, 239, 80, 0]]


def test_images_come_in_the_order_asked_for_with_their_sizes(source):
    examples = source.splits["test"]
    images = list(examples.images(range(359)))
    assert list(examples.images([7, 3])) == [images[7], images[3]]
    assert {image._replace(encoded=b"") for image in images} == {Image(b"", "png", 8, 8)}
    assert examples.image_bytes.sum() == sum(len(image.encoded) for image in images)


@pytest.mark.parametrize(
    "content",
    [None, b"", b"no table", TABLE[:-20], b"one,two", b"\xff\xfe", b"1,2\n3\n", b"nan," * 65, TABLE + b"\0"],
    ids=["missing", "empty", "no table", "cut", "words", "binary", "ragged", "no numbers", "longer"],
)
def test_a_damaged_file_is_a_data_error_that_names_it(tmp_path, content):
    if content is not None:
        (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataError, match=NAME):
        read(tmp_path)


@pytest.mark.parametrize(
    ("row", "column", "most", "values"),
    [(5, 3, 16, ["17", "-1", "300", "0.5", "nan", "inf", "1e300"]), (0, 64, 9, ["10", "-1", "0.5"])],
    ids=["ink", "label"],
)
def test_a_value_outside_its_range_is_reported_with_its_place(damage, row, column, most, values):
    place = f"line {row + 1}, column {column + 1}; expected an integer from 0 to {most}"
    for value in values:
        with pytest.raises(DataError, match=rf"{NAME}: .* in {place}"):
            read(damage(row, column, value))
