"""The network that learns in a few epochs: how it starts, and its normalization against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from perennial.model.models import MODELS, fast_cnn
from perennial.model.models.fast_cnn import FastBatchNorm, Whitening

IMAGES = np.cumsum(np.random.default_rng(0).normal(size=(50, 12, 12, 3)), axis=2).astype(np.float32) / 3
FEATURES = np.random.default_rng(1).normal(2, 3, (8, 5, 5, 4)).astype(np.float32)


@pytest.fixture
def norm() -> FastBatchNorm:
    layer = FastBatchNorm(momentum=0.6, epsilon=1e-6, scale=False)
    layer.build(FEATURES.shape)
    layer.beta.assign([1.0, 2.0, 3.0, 4.0])
    return layer


def test_the_whitened_outputs_of_the_images_are_uncorrelated_and_of_variance_one() -> None:
    layer = Whitening()
    layer.build(IMAGES.shape)
    layer.fit(IMAGES)
    outputs = layer(IMAGES).numpy().reshape(-1, 24)
    np.testing.assert_allclose(outputs[:, 12:], -outputs[:, :12], atol=1e-5)
    np.testing.assert_allclose(outputs.T[:12] @ outputs[:, :12] / len(outputs), np.eye(12), atol=0.02)
    assert [weight.name for weight in layer.trainable_weights] == ["bias"]


def test_the_other_convolutions_start_by_copying_their_inputs(build) -> None:
    model = build("fast_cnn")
    kernel = model.get_layer("block1_1_conv").kernel.numpy()
    np.testing.assert_array_equal(kernel[1, 1, :, :24], np.eye(24))
    assert np.abs(kernel[..., :24]).sum() == 24
    limit = 1 / np.sqrt(9 * 24)
    assert 0.9 * limit < np.abs(kernel[..., 24:]).max() <= limit


def test_preparing_changes_the_whitening_alone(build) -> None:
    model = build("fast_cnn", (12, 12, 3))
    before = {weight.path: weight.numpy() for weight in model.weights}
    MODELS["fast_cnn"].prepare(model, IMAGES)
    changed = [weight.path for weight in model.weights if not np.array_equal(weight, before[weight.path])]
    assert changed == ["whitening/kernel"]


def test_a_batch_is_normalized_by_its_own_statistics_which_the_averages_follow(norm: FastBatchNorm) -> None:
    mean, variance = FEATURES.mean((0, 1, 2)), FEATURES.var((0, 1, 2), ddof=1)
    expected = (FEATURES - mean) / FEATURES.std((0, 1, 2)) + 8 * np.arange(1, 5)
    np.testing.assert_allclose(norm(FEATURES, training=True), expected, atol=1e-4)
    np.testing.assert_allclose(norm.moving_mean, 0.4 * mean, rtol=1e-5)
    np.testing.assert_allclose(norm.moving_variance, 0.6 + 0.4 * variance, rtol=1e-5)


def test_evaluation_and_a_frozen_layer_use_the_averages(norm: FastBatchNorm) -> None:
    norm.moving_mean.assign([2.0] * 4)
    norm.moving_variance.assign([9.0] * 4)
    expected = (FEATURES - 2) / 3 + 8 * np.arange(1, 5)
    np.testing.assert_allclose(norm(FEATURES), expected, atol=1e-4)
    norm.trainable = False
    np.testing.assert_allclose(norm(FEATURES, training=True), expected, atol=1e-4)


def test_statistics_of_all_devices_give_the_same(norm: FastBatchNorm) -> None:
    own = norm(FEATURES, training=True).numpy()
    norm.synchronized = True
    np.testing.assert_allclose(norm(FEATURES, training=True), own, atol=1e-4)


def test_a_step_moves_an_offset_64_times_as_far(norm: FastBatchNorm) -> None:
    def offset() -> np.ndarray:
        return norm(FEATURES, training=True).numpy().mean((0, 1, 2))

    before = offset()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(norm(FEATURES, training=True))  # its gradient by each offset: 8 * 5 * 5
    norm.beta.assign_sub(0.001 * tape.gradient(loss, norm.beta.value))
    np.testing.assert_allclose(offset() - before, -0.001 * 200 * fast_cnn.OFFSET_SPEED, rtol=1e-3)


def by_hand(model: keras.Model, images: np.ndarray, *, training: bool) -> np.ndarray:
    """The logits by all layers but those that mirror."""
    for layer in model.layers[1:]:
        if "mirrored" not in layer.name:
            images = layer(images, **({"training": training} if isinstance(layer, FastBatchNorm) else {}))
    return images.numpy()


@pytest.fixture
def prepared(build) -> keras.Model:
    """A model that gives other logits for a mirror image."""
    model = build("fast_cnn", (12, 12, 3))
    MODELS["fast_cnn"].prepare(model, IMAGES)
    return model


def test_inference_averages_the_logits_of_an_image_and_its_mirror_image(prepared) -> None:
    plain, mirror = (by_hand(prepared, images, training=False) for images in (IMAGES, IMAGES[:, :, ::-1]))
    assert np.abs(plain - mirror).max() > 1e-3
    np.testing.assert_allclose(prepared(IMAGES), (plain + mirror) / 2, atol=1e-5)
    np.testing.assert_allclose(prepared(IMAGES[:1, :, ::-1]), prepared(IMAGES[:1]), atol=1e-5)


def test_training_takes_the_images_alone(prepared) -> None:
    expected = by_hand(prepared, IMAGES, training=True)
    np.testing.assert_allclose(prepared(IMAGES, training=True), expected, atol=1e-5)


def test_dropout_comes_where_it_is_asked_for(build) -> None:
    layers = [layer.name for layer in build("fast_cnn", dropout=0.25).layers]
    assert layers[-2:] == ["dropout", "logits"]
