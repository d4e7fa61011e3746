"""Records of many images at once: the bytes that they are one by one."""

import numpy as np
import pytest
from support.records import datum

from perennial.tfrecord import framing, stacks

RANDOM = np.random.default_rng(0)


def one_by_one(images, labels):
    return b"".join(framing.frame(datum(pixels, label)) for pixels, label in zip(images, labels, strict=True))


@pytest.mark.parametrize(
    "shape", [(28, 28), (5, 3, 1), (32, 32, 3), (1, 1), (255, 256), (256, 256), (200, 200, 3)]
)
def test_many_records_are_those_that_each_image_would_be(shape):
    images, labels = RANDOM.integers(0, 256, (5, *shape), np.uint8), [3, 0, 3, 127, 1]
    assert stacks.records(images, np.array(labels)) == one_by_one(images, labels)


def test_labels_may_take_more_or_fewer_bytes():
    images, labels = RANDOM.integers(0, 256, (4, 6, 5), np.uint8), [127, 128, 20_000, 0]
    assert stacks.records(images, np.array(labels)) == one_by_one(images, labels)


def test_labels_may_all_take_two_bytes():
    images, labels = RANDOM.integers(0, 256, (3, 6, 5), np.uint8), [300, 128, 129]
    assert stacks.records(images, np.array(labels)) == one_by_one(images, labels)


def test_planes_of_colours_are_taken_as_they_are():
    planes, labels = RANDOM.integers(0, 256, (3, 3, 8, 6), np.uint8), [1, 0, 2]
    images = planes.transpose(0, 2, 3, 1)
    assert stacks.records(images, np.array(labels)) == one_by_one(images.copy(), labels)


def test_no_images_are_no_records():
    assert stacks.records(np.zeros((0, 4, 4), np.uint8), np.zeros(0, np.int64)) == b""
