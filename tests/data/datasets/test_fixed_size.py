"""IDX files: what is read, and what is refused."""

import io
import struct

import numpy as np
import PIL.Image
import pytest

from perennial.base.errors import DataError
from perennial.data.datasets.readers import fixed_size

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def packed(values, magic=None):
    magic = 0x800 | values.ndim if magic is None else magic
    return struct.pack(f">{1 + values.ndim}I", magic, *values.shape) + values.tobytes()


def labels(*values):
    return packed(np.array(values, np.uint8))


each_file = pytest.mark.parametrize(
    ("name", "sound"), [("images", packed(IMAGES)), ("named", labels(1, 0))], ids=["images", "labels"]
)


@pytest.fixture
def read(tmp_path):
    """The examples of two files, sound ones but for what is given."""

    images_file, labels_file = tmp_path / "images", tmp_path / "labels"
    images_file.write_bytes(packed(IMAGES))
    labels_file.write_bytes(labels(1, 0))

    def examples(images=None, named=None):
        for file, content in ((images_file, images), (labels_file, named)):
            if content is not None:
                file.write_bytes(content)
        return fixed_size.idx_examples(images_file, labels_file, classes=2)

    return examples


def outcome(read, **contents):
    """The file that a refusal names, or None."""
    try:
        read(**contents)
    except DataError as error:
        return str(error)
    return None


def test_images_and_labels_come_in_the_order_asked_for_with_their_sizes(read):
    found = list(read().images([1, 0]))
    for image, pixels in zip(found, IMAGES[::-1], strict=True):
        assert np.array_equal(PIL.Image.open(io.BytesIO(image.encoded)), pixels)
        assert (image.height, image.width) == (3, 4)
    assert read().labels.tolist() == [1, 0]
    assert read().image_bytes.sum() == sum(len(image.encoded) for image in found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "images: 0 bytes, expected a header of 16"),
        (packed(IMAGES)[:15], "images: 15 bytes, expected a header of 16"),
        (packed(IMAGES)[:-1], r"images: dimensions \[2, 3, 4\] in the header need 40 bytes, it has 39"),
        (packed(IMAGES) + b"\0", r"images: dimensions \[2, 3, 4\] in the header need 40 bytes, it has 41"),
        (packed(IMAGES, magic=0x801), "images: magic number 2049 at offset 0, expected 2051"),
        (packed(IMAGES, magic=0xD03), "images: magic number 3331 at offset 0, expected 2051"),
        (struct.pack(">4I", 0x803, *[0xFFFFFFFF] * 3), "in the header need"),
    ],
    ids=["empty", "header cut", "values cut", "too long", "labels for images", "floats", "huge"],
)
def test_damaged_values_are_reported_with_what_was_expected(read, content, message):
    with pytest.raises(DataError, match=message):
        read(images=content)


@each_file
def test_every_flipped_bit_of_a_header_is_refused_and_its_file_named(read, name, sound):
    wrong = []
    for bit in range(8 * {"images": 16, "named": 8}[name]):
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        message = outcome(read, **{name: bytes(changed)})
        if message is None or {"named": "labels"}.get(name, name) not in message:
            wrong.append(bit)
    assert wrong == []


@each_file
def test_every_cut_of_a_file_is_refused(read, name, sound):
    assert [size for size in range(len(sound)) if outcome(read, **{name: sound[:size]}) is None] == []


def test_every_label_that_is_no_class_is_refused_with_its_place(read):
    assert "labels: label 2 at index 1, expected 0 to 1" in outcome(read, named=labels(1, 2))
    assert [value for value in range(256) if outcome(read, named=labels(1, value)) is None] == [0, 1]


def test_as_many_labels_as_images_are_needed(read):
    with pytest.raises(DataError, match=r"images holds 2 images and .*labels 1 labels"):
        read(named=labels(1))


@pytest.mark.parametrize(
    ("empty", "named"),
    [(IMAGES[:0], labels()), (IMAGES[:, :0], labels(1, 0)), (IMAGES[:, :, :0], labels(1, 0))],
    ids=["no images", "no lines", "no columns"],
)
def test_images_without_pixels_are_refused(read, empty, named):
    with pytest.raises(DataError, match=r"images holds no pixels"):
        read(images=packed(empty), named=named)
