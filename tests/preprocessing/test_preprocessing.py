"""Pixels on their way to the model."""

import numpy as np
import pytest
import tensorflow as tf

from perennial.config import PreprocessingConfig
from perennial.preprocessing import PREPROCESSING, Pixels


def pixels(*, side: int | None, image_size: int | None) -> Pixels:
    return Pixels(preprocessing="rescale", height=side, width=side, channels=1, image_size=image_size)


def test_the_configuration_knows_every_preprocessing() -> None:
    (choices,) = [PreprocessingConfig.model_fields["name"].annotation]
    assert set(choices.__args__) == set(PREPROCESSING)


def test_rescale_maps_bytes_to_fractions() -> None:
    images = tf.constant([[[[0], [51], [255]]]], tf.uint8)
    assert pixels(side=3, image_size=None).preprocess(images).numpy().ravel() == pytest.approx([0, 0.2, 1])


def test_images_of_the_right_size_are_not_touched() -> None:
    images = tf.constant(np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1))
    assert pixels(side=4, image_size=None).resize(images) is images


def test_image_size_decides_the_shape_of_the_model() -> None:
    resized = pixels(side=4, image_size=2).resize(tf.zeros((1, 4, 4, 1), tf.uint8))
    assert (resized.shape, resized.dtype) == ((1, 2, 2, 1), tf.uint8)


def test_different_sizes_need_an_image_size() -> None:
    with pytest.raises(ValueError, match="image_size"):
        _ = pixels(side=None, image_size=None).model_shape
