"""Training on smaller images first."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.training import parameters, run

from perennial.base.errors import ConfigError
from perennial.model import models
from perennial.model.training import train_step
from perennial.model.training.image_sizes import Sizes, resized
from perennial.model.training.triggers import Length

NETWORK = {"model.name": "fast_cnn", "model.channels": [8, 8, 8], "preprocessing.image_size": 16}


def network(side: int) -> keras.Model:
    """A network whose weights do not depend on the size of its images; equal weights for equal seeds."""
    image = keras.Input((side, side, 1))
    kernel = keras.initializers.GlorotUniform(seed=3)
    features = keras.layers.Conv2D(4, 3, kernel_initializer=kernel)(image)
    dropped = keras.layers.BatchNormalization()(features)
    logits = keras.layers.Dense(2, kernel_initializer=kernel)(keras.layers.GlobalMaxPooling2D()(dropped))
    return keras.Model(image, logits)


@pytest.mark.parametrize(
    ("sizes", "sides"),
    [((8, 12, 16), [8, 8, 8, 8, 12, 12, 12, None, None, None]), ((8,), [8] * 10), ((), [None] * 10)],
)
def test_each_size_has_an_equal_part_of_the_steps(sizes, sides):
    found = Sizes(network(16), sizes, Length(steps=10, steps_per_epoch=5, limit="steps"))
    assert [found.side(step) for step in range(10)] == sides
    changes = [step for step in range(1, 10) if sides[step] != sides[step - 1]]
    for step in range(10):
        assert found.change(step) == next((change for change in changes if change > step), None)
    assert found.side(12) == sides[-1]  # a finished training whose last step is evaluated


@pytest.mark.parametrize("training", [False, True])
def test_a_network_of_another_size_gives_the_same_outputs(training):
    images = tf.constant(np.random.default_rng(1).normal(size=(6, 16, 16, 1)), tf.float32)
    small = tf.image.resize(images, (8, 8), antialias=True)
    large, built = network(16), network(8)
    outputs = resized(large, 8, images, training=training), built(small, training=training)
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-6)
    for one, other in zip(large.weights, built.weights, strict=True):  # of batch normalization, too
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def pooled(image, classes, options):
    """A small network for images of any size."""
    inputs = keras.Input(image, name="image")
    pool = keras.layers.GlobalMaxPooling2D(name="pool")(keras.layers.Conv2D(4, 3, name="conv")(inputs))
    return keras.Model(inputs, keras.layers.Dense(classes, name="logits")(pool), name=options.name)


def test_a_training_goes_from_size_to_size(here, monkeypatch):
    monkeypatch.setitem(models.MODELS, "mnist_cnn", replace(models.MODELS["mnist_cnn"], network=pooled))
    sides = []

    def noted(network, side, *images, **options):
        sides.append(side)
        return resized(network, side, *images, **options)

    monkeypatch.setattr(train_step, "resized", noted)
    record = run({"train.augmentation.image_sizes": [4, 8], "train.max_steps": 2}).record
    assert set(sides) == {4}  # the last size is that of the network
    assert record["step"] == 2


def test_a_network_for_one_size_is_refused(here):
    with pytest.raises(ConfigError, match=r"must be \[\] for mnist_cnn here, got \[4, 8\]: .* 8 x 8 pixels"):
        run({"train.augmentation.image_sizes": [4, 8]})
    assert not list(here.glob(".work/train/*/step-*"))


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [([16, 12], "must grow"), ([12, 12], "must grow"), ([8, 16], "from 9"), ([9, 17], "to 16"), ([0], "")],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path, monkeypatch, sizes, rule):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=rf"train\.augmentation\.image_sizes.* {rule}"):
        parameters({**NETWORK, "train.augmentation.image_sizes": sizes})
