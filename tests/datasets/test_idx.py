"""IDX files: what is read, and what is refused."""

import gzip
import io
import struct

import numpy as np
import PIL.Image
import pytest

from perennial.datasets import idx
from perennial.errors import DataError

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def packed(values, magic=None):
    magic = 0x800 | values.ndim if magic is None else magic
    return struct.pack(f">{1 + values.ndim}I", magic, *values.shape) + values.tobytes()


@pytest.fixture
def write(tmp_path):
    def content(data, name="images.gz"):
        (tmp_path / name).write_bytes(gzip.compress(data))
        return tmp_path / name

    return content


def labels(*values):
    return packed(np.array(values, np.uint8))


def test_values_are_read_in_their_shape(write):
    assert np.array_equal(idx.read(write(packed(IMAGES)), dimensions=3), IMAGES)


def test_an_image_holds_the_pixels_of_its_number(write):
    examples = idx.examples(write(packed(IMAGES)), write(labels(1, 0), "labels.gz"), classes=2)
    image = examples.image(1)
    assert np.array_equal(PIL.Image.open(io.BytesIO(image.encoded)), IMAGES[1])


def test_an_image_says_its_size(write):
    examples = idx.examples(write(packed(IMAGES)), write(labels(1, 0), "labels.gz"), classes=2)
    assert (examples.image(0).height, examples.image(0).width) == (3, 4)


def test_labels_are_read_in_their_order(write):
    examples = idx.examples(write(packed(IMAGES)), write(labels(1, 0), "labels.gz"), classes=2)
    assert examples.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "0 bytes, expected a header of 16"),
        (packed(IMAGES)[:15], "15 bytes, expected a header of 16"),
        (packed(IMAGES)[:-1], r"dimensions \[2, 3, 4\] in the header need 40 bytes, it has 39"),
        (packed(IMAGES) + b"\0", r"dimensions \[2, 3, 4\] in the header need 40 bytes, it has 41"),
        (packed(IMAGES, magic=0x801), "magic number 2049 at offset 0, expected 2051"),
        (packed(IMAGES, magic=0xD03), "magic number 3331 at offset 0, expected 2051"),
        (struct.pack(">4I", 0x803, *[0xFFFFFFFF] * 3), "in the header need"),
    ],
    ids=["empty", "header cut", "values cut", "too long", "labels for images", "floats", "huge"],
)
def test_damaged_values_are_told_with_what_was_expected(write, content, told):
    with pytest.raises(DataError, match=rf"images\.gz: {told}" if "header need" not in told else told):
        idx.read(write(content), dimensions=3)


def test_every_cut_of_a_file_is_refused(write):
    file = write(packed(IMAGES))
    whole, read = file.read_bytes(), []
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        try:
            idx.read(file, dimensions=3)
        except DataError:
            continue
        read.append(size)
    assert read == []


def test_the_checksum_at_the_end_of_the_stream_is_checked(write):
    file = write(packed(IMAGES))
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"images\.gz is no whole gzip file: CRC check failed"):
        idx.read(file, dimensions=3)


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match=r"absent\.gz"):
        idx.read(tmp_path / "absent.gz", dimensions=1)


def test_as_many_labels_as_images_are_needed(write):
    images, one_label = write(packed(IMAGES)), write(labels(1), "labels.gz")
    with pytest.raises(DataError, match=r"holds 2 images and .*labels\.gz 1 labels"):
        idx.examples(images, one_label, classes=2)


def test_a_label_that_is_no_class_is_told_with_its_place(write):
    images, wrong = write(packed(IMAGES)), write(labels(1, 2), "labels.gz")
    with pytest.raises(DataError, match=r"labels\.gz: label 2 at index 1, expected 0 to 1"):
        idx.examples(images, wrong, classes=2)


def test_a_file_without_images_is_refused(write):
    images, none = write(packed(IMAGES[:0])), write(labels(), "labels.gz")
    with pytest.raises(DataError, match=r"images\.gz holds no pixels"):
        idx.examples(images, none, classes=2)


@pytest.mark.parametrize("empty", [IMAGES[:, :0], IMAGES[:, :, :0]], ids=["no lines", "no columns"])
def test_images_without_pixels_are_refused(write, empty):
    images, two = write(packed(empty)), write(labels(1, 0), "labels.gz")
    with pytest.raises(DataError, match=r"images\.gz"):
        idx.examples(images, two, classes=2).image(0)
