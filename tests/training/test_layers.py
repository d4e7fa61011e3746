"""Patterns of layers: what they let be trained, and which are refused."""

import keras
import numpy as np
import pytest

from perennial.errors import ConfigError
from perennial.training import layers


@pytest.fixture
def model() -> keras.Model:
    x = image = keras.Input((4,))
    x = keras.layers.Dense(3, name="first")(x)
    x = keras.layers.BatchNormalization(name="first_bn")(x)
    x = keras.layers.Flatten(name="flat")(x)
    return keras.Model(image, keras.layers.Dense(2, name="logits")(x), name="small")


def trained(model: keras.Model) -> list[str]:
    return [weight.path for weight in model.trainable_weights]


def test_only_the_layers_that_patterns_name_are_trained(model: keras.Model) -> None:
    layers.set_trainable(model, ("log*",))
    assert trained(model) == ["logits/kernel", "logits/bias"]


def test_without_a_pattern_all_are_trained_again(model: keras.Model) -> None:
    before = trained(model)
    layers.set_trainable(model, ("first",))
    layers.set_trainable(model, ())
    assert trained(model) == before


def test_frozen_batch_normalization_uses_its_statistics_and_leaves_them_as_they_are(model: keras.Model) -> None:
    images = np.random.default_rng(0).normal(5, 3, (8, 4)).astype(np.float32)
    statistics = model.get_layer("first_bn").non_trainable_weights
    expected, before = model(images, training=False).numpy(), [each.numpy() for each in statistics]
    layers.set_trainable(model, ("logits",))
    np.testing.assert_array_equal(model(images, training=True), expected)
    for each, value in zip(statistics, before, strict=True):
        np.testing.assert_array_equal(each, value)


@pytest.mark.parametrize("pattern", ["logit", "flat", "logits/kernel"])
def test_a_pattern_that_names_no_layer_with_weights_is_refused_with_those_there_are(
    model: keras.Model, pattern: str
) -> None:
    with pytest.raises(
        ConfigError, match=rf"train\.trainable: .* named {pattern}; there are first, first_bn, logits$"
    ):
        layers.set_trainable(model, ("first", pattern))


def test_weights_are_found_by_their_path_trained_or_not(model: keras.Model) -> None:
    layers.set_trainable(model, ("logits",))
    found = layers.weights_matching(model, ("*/kernel",))
    assert [weight.path for weight in found] == ["first/kernel", "logits/kernel"]


@pytest.mark.parametrize(("pattern", "expected"), [("logits", True), ("logits/kern*", True), ("kernel", False)])
def test_a_pattern_names_a_weight_by_its_path_or_by_its_layer(pattern: str, expected: bool) -> None:
    assert layers.names_weight((pattern,), "logits/kernel") is expected
