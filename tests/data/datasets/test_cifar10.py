"""CIFAR-10: its archive is read to images and labels, and a wrong one is refused."""

import io
import itertools
import pickle

import numpy as np
import PIL.Image
import pytest
from support.raw import tar

from perennial.base.errors import DataError
from perennial.data.datasets.cifar10 import CIFAR10, CLASSES, TEST, TRAIN
from perennial.data.images import Image

PER_BATCH = 4
NAMES = [*TRAIN, *TEST]
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (6, PER_BATCH, 3072), np.uint8)
LABELS = RANDOM.integers(0, 10, (6, PER_BATCH), np.uint8)


def records(number):
    """A batch as the binary version holds it."""
    return np.concatenate([LABELS[number, :, None], PIXELS[number]], axis=1).tobytes()


BINARY = {f"cifar-10-batches-bin/{name}.bin": records(number) for number, name in enumerate(NAMES)}
BINARY["cifar-10-batches-bin/batches.meta.txt"] = ("\n".join(CLASSES) + "\n\n").encode()


@pytest.fixture
def raw(tmp_path):
    """Writes a tar file of these members into a folder, the one that `read` gets."""

    def make(contents):
        (tmp_path / "cifar-10-binary.tar").write_bytes(tar(contents))
        return tmp_path

    return make


def pixels(examples, numbers):
    """The pixels of images as the binary version holds them: planes of red, green and blue."""
    images = [np.asarray(PIL.Image.open(io.BytesIO(image.encoded))) for image in examples.images(numbers)]
    return np.array([image.transpose(2, 0, 1).reshape(3072) for image in images])


def test_images_and_labels_are_those_of_the_batches_in_the_order_asked_for(raw):
    source = CIFAR10.read(raw(BINARY))
    train, test = source.splits["train"], source.splits["test"]
    assert (source.classes, test.labels.tolist()) == (CLASSES, LABELS[5].tolist())
    assert train.labels.tolist() == LABELS[:5].ravel().tolist()
    for numbers in (range(20), [19, 0, 7, 8, 7]):
        assert np.array_equal(pixels(train, numbers), PIXELS[:5].reshape(20, 3072)[list(numbers)])
    assert np.array_equal(pixels(pickle.loads(pickle.dumps(test)), range(PER_BATCH)), PIXELS[5])
    images = list(train.images(range(20)))
    assert {image._replace(encoded=b"") for image in images} == {Image(b"", "png", 32, 32)}
    assert train.image_bytes.sum() == sum(len(image.encoded) for image in images)


def test_the_list_of_classes_may_be_absent(raw):
    without = {name: content for name, content in BINARY.items() if name.endswith(".bin")}
    assert CIFAR10.read(raw(without)).classes == CLASSES


def swapped(name, content):
    return BINARY | {f"cifar-10-batches-bin/{name}": content}


TWO = records(1)[: 2 * 3073]
OTHERS = ("cat", "dog", *CLASSES[2:])
WRONG = {
    "cut": (
        swapped("data_batch_2.bin", TWO[:-1]),
        "data_batch_2.bin: 6145 bytes are 1 records .* remainder of 3072",
    ),
    "CIFAR-100": (
        swapped("data_batch_2.bin", bytes(2 * 3074)),
        "6148 bytes are 2 records of 3073 bytes and a remainder of 2; records of 3074 bytes are CIFAR-100's",
    ),
    "empty": (swapped("test_batch.bin", b""), "test_batch.bin: 0 bytes are 0 records"),
    "missing": (
        {name: each for name, each in BINARY.items() if "batch_4" not in name},
        "does not hold cifar-10-batches-bin/data_batch_4.bin",
    ),
    "label": (
        swapped("data_batch_3.bin", records(3)[:3073] + b"\x0a" + records(3)[3074:]),
        "data_batch_3.bin: label 10 in record 1 at byte 3073, expected 0 to 9",
    ),
    "classes": (
        swapped("batches.meta.txt", "\n".join(OTHERS).encode()),
        "batches.meta.txt: the classes are .'cat', 'dog'",
    ),
    "classes that are no text": (swapped("batches.meta.txt", b"\xff"), "batches.meta.txt: the classes are"),
}


@pytest.mark.parametrize(("contents", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_archive_is_refused(raw, contents, message):
    with pytest.raises(DataError, match=rf"cifar-10-binary\.tar.*{message}"):
        CIFAR10.read(raw(contents))


def test_no_archive_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar does not exist"):
        CIFAR10.read(tmp_path)


def test_labels_of_many_records_are_read_in_pieces(raw):
    labels = list(itertools.islice(itertools.cycle(range(10)), 2503))
    content = b"".join(bytes([label]) + bytes(3072) for label in labels)
    assert CIFAR10.read(raw(swapped("test_batch.bin", content))).splits["test"].labels.tolist() == labels
