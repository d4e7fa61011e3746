"""Resizing of batches, against tf.image on one image at a time."""

import numpy as np
import pytest
import tensorflow as tf

from perennial.data.preprocessing import resampling
from perennial.data.preprocessing.resampling import area, bicubic, bilinear, line, nearest, resample

# (top, left, height, width) of images of 40 x 30: inside, at the edges, smaller and larger than the result
PARTS = np.array([(0, 0, 40, 30), (3, 5, 9, 7), (10, 0, 30, 12), (39, 29, 1, 1), (17, 2, 21, 28)], np.int32)
SIZE = (16, 20)


def lines(images):
    axes = zip(images.shape[1:3], (0, 1), SIZE, strict=True)
    return [line(whole, (PARTS[:, axis], PARTS[:, axis + 2]), count, count) for whole, axis, count in axes]


def by_tensorflow(images, method, **options):
    parts = [
        image[top : top + height, left : left + width]
        for image, (top, left, height, width) in zip(images, PARTS, strict=True)
    ]
    return tf.stack([tf.image.resize(part, SIZE, method=method, **options) for part in parts])


@pytest.fixture
def photos(images):
    return tf.cast(images(5, 40, 30, 3), tf.float32) / 255.0


@pytest.mark.parametrize(
    ("method", "name", "tolerance"),
    [
        (bilinear, "bilinear", 1e-6),
        (nearest, "nearest", 0),
        (area, "area", 1e-5),
        (bicubic, "bicubic", 1e-3),  # tf.image looks its cubic up in a table of 1024 rows
    ],
)
def test_a_part_of_each_image_is_resized_as_by_tf_image(method, name, tolerance, photos):
    resized = resample(photos, lines(photos), method, tf.zeros(5, tf.bool))
    assert resized.numpy() == pytest.approx(by_tensorflow(photos, name).numpy(), abs=tolerance)


@pytest.mark.parametrize("shape", [(20, 15), (56, 44), (13, 40), (1, 1), (40, 7)])
def test_whole_images_are_resized_as_by_tf_image_with_antialias(shape, photos):
    expected = tf.image.resize(photos, shape, antialias=True).numpy()
    assert resampling.resize(photos, *shape).numpy() == pytest.approx(expected, abs=2e-6)
