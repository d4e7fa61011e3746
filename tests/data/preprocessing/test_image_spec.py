"""The way of an image from the record to the model."""

from typing import get_args

import numpy as np
import pytest
import tensorflow as tf

from perennial.base import choices
from perennial.base.config.data import PreprocessingConfig
from perennial.base.errors import ConfigError
from perennial.data.preprocessing import PREPROCESSING, ImageSpec, fitted, keys


def chosen(**values):
    return PreprocessingConfig(
        **{"name": "auto", "image_size": None, "grayscale": False, "resize": "auto", "fast": True, **values}
    )


def test_the_configuration_knows_every_preprocessing():
    assert set(get_args(choices.Preprocessing)) == {"auto", *PREPROCESSING}


@pytest.mark.slow
@pytest.mark.parametrize("name", PREPROCESSING)
def test_xla_gives_the_same_images_where_it_can(name, pixels, images):
    raw, way = images(3, 20, 20, 3), pixels(name, (20, 20, 3), image_size=16)
    assert way.compilable == (name != "rescale")
    if name == "rescale":
        with pytest.raises(tf.errors.InvalidArgumentError, match="ScaleAndTranslate"):
            tf.function(way.evaluation, jit_compile=True, autograph=False)(raw)
        way = pixels(name, (20, 20, 3), image_size=None)
        assert way.compilable
    drawn, tolerance = keys(3, 3, tf.range(3)), 1e-3 if name == "vgg" else 5e-5
    compiled = tf.function(way.training, jit_compile=True, autograph=False)(raw, drawn).numpy()
    assert compiled == pytest.approx(way.training(raw, drawn).numpy(), abs=tolerance)
    judged = tf.function(way.evaluation, jit_compile=True, autograph=False)(raw).numpy()
    assert judged == pytest.approx(way.evaluation(raw).numpy(), abs=tolerance)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 50, 3)])
@pytest.mark.parametrize("name", PREPROCESSING)
def test_odd_sizes_become_what_the_model_takes(name, shape, pixels, images):
    raw = images(2, *shape)
    for size, grayscale in ((None, False), (9, True)):
        way = pixels(name, shape, image_size=size, grayscale=grayscale, fast=False)
        for found in (way.training(raw, keys(0, 0, tf.range(2))), way.evaluation(raw)):
            assert (found.shape, found.dtype) == ((2, *way.model_shape), tf.float32)
            assert np.isfinite(found).all()


def test_different_sizes_need_an_image_size(pixels):
    with pytest.raises(ValueError, match="image_size"):
        _ = pixels("rescale", (None, None, 1)).model_shape


@pytest.mark.parametrize(
    ("name", "image_size", "sides", "same"),
    [
        ("standard", None, (512, 3000), [True, False]),  # larger ones would fill a device's memory
        ("cifarnet", 224, (512, 3000, None), [True, False, False]),
        ("vgg", 224, (32, 128, 224), [True, True, False]),  # photographs are resized in less time one by one
        ("standard", 224, (32, 128, 224), [True, True, True]),
    ],
)
def test_images_that_are_large_or_of_several_sizes_are_not_stacked(name, image_size, sides, same, pixels):
    assert [pixels(name, (side, side, 3), image_size=image_size).same_size for side in sides] == same


def test_auto_is_what_the_architecture_came_with():
    images = {"published": "vgg", "tensorflow_1": True, "heights": (8, 8), "widths": (9, 9), "channels": 1}
    assert fitted(chosen(), **images).preprocessing == "vgg"
    assert fitted(chosen(name="lenet"), **images).raw_shape == (8, 9, 1)


@pytest.mark.parametrize(
    ("asked", "tensorflow_1", "expected"),
    [("auto", True, "legacy"), ("auto", False, "exact"), ("legacy", False, "legacy"), ("exact", True, "exact")],
)
def test_networks_of_slim_get_images_as_tensorflow_1_resized_them(asked, tensorflow_1, expected):
    images = {"published": "vgg", "heights": (8, 8), "widths": (9, 9), "channels": 3}
    assert fitted(chosen(resize=asked), tensorflow_1=tensorflow_1, **images).resize == expected


def test_a_model_made_before_keeps_its_pixels(pixels):
    described = pixels("inception", (None, None, 3), image_size=224).model_dump(exclude={"resize", "version"})
    before = ImageSpec.model_validate(described)
    assert (before.resize, before.version) == ("exact", 1)


def test_images_of_different_sizes_are_refused_without_an_image_size():
    images = {"published": "vgg", "tensorflow_1": True, "heights": (8, 8), "widths": (9, 30), "channels": 3}
    with pytest.raises(ConfigError, match="image_size must be set: images are 8 to 8 pixels high and 9 to 30"):
        fitted(chosen(), **images)
    assert fitted(chosen(image_size=16), **images).raw_shape == (8, None, 3)
