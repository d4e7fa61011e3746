"""Losses against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.config.training import TrainConfig
from perennial.base.errors import ConfigError
from perennial.model.models import MODELS, architecture
from perennial.model.training import losses

RANDOM = np.random.default_rng(3)
LOGITS = RANDOM.normal(scale=4, size=(64, 5))
LABELS = RANDOM.integers(5, size=64)


def expected(smoothing: float) -> NDArray[np.float64]:
    """Cross-entropy of LOGITS with smoothed labels, from its definition."""
    log_softmax = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
    targets = np.eye(5)[LABELS] * (1 - smoothing) + smoothing / 5
    return -(targets * log_softmax).sum(axis=1)


def cross_entropy(
    logits: NDArray[np.float64] | tf.Tensor = LOGITS,
    smoothing: float = 0.0,
    class_weights: list[float] | None = None,
) -> NDArray[np.float32]:
    return losses.cross_entropy(
        tf.cast(logits, tf.float32) if isinstance(logits, np.ndarray) else logits,
        tf.constant(LABELS),
        classes=5,
        label_smoothing=smoothing,
        class_weights=class_weights,
    ).numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_cross_entropy_is_what_its_definition_gives(smoothing: float) -> None:
    np.testing.assert_allclose(cross_entropy(smoothing=smoothing), expected(smoothing), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_example_counts_as_much_as_its_class(smoothing: float) -> None:
    weights = [0.5, 1.0, 2.0, 0.0, 3.0]
    weighted = cross_entropy(smoothing=smoothing, class_weights=weights)
    np.testing.assert_allclose(weighted, expected(smoothing) * np.array(weights)[LABELS], rtol=1e-5, atol=1e-6)


def objective(class_weights: list[float] | None = None, **options: object) -> losses.Objective:
    """The loss of a network whose outputs are the given logits, without L2."""
    taken = keras.Input([5])
    model = keras.Model(taken, keras.layers.Identity(name="logits")(taken))
    config = TrainConfig(epochs=1, weight_decay=0.0, **options)
    return losses.Objective(model, MODELS["mnist_cnn"], config, class_weights)


def test_the_total_is_the_mean_of_both_classifiers_and_the_penalty() -> None:
    logits, other = tf.constant(LOGITS, tf.float32), tf.constant(LOGITS[::-1].copy(), tf.float32)
    outputs = {architecture.LOGITS: logits, architecture.AUX_LOGITS: other}
    found = objective(aux_loss_weight=0.3).losses(outputs, tf.constant(LABELS), 64)
    parts = cross_entropy().sum() / 64, 0.3 * cross_entropy(other).sum() / 64, 0.0
    assert [float(part) for part in found] == pytest.approx([*parts, sum(parts)], rel=1e-5)


WEIGHTS = [0.5, 1.0, 2.0, 0.1, 3.0]


def test_a_mixed_image_counts_for_both_labels() -> None:
    others, own = LABELS[::-1].copy(), RANDOM.uniform(size=64).astype(np.float32)
    other = losses.Other(tf.constant(others), tf.constant(own))
    found = objective(WEIGHTS, label_smoothing=0.1).losses(
        tf.constant(LOGITS, tf.float32), tf.constant(LABELS), 64, other=other
    )
    log_softmax = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
    smooth = np.eye(5) * 0.9 + 0.02
    targets = (own * np.array(WEIGHTS)[LABELS])[:, None] * smooth[LABELS]
    targets += ((1 - own) * np.array(WEIGHTS)[others])[:, None] * smooth[others]
    assert float(found.cross_entropy) == pytest.approx(-(targets * log_softmax).sum() / 64, rel=1e-5)


SEVERAL = RANDOM.integers(2, size=(64, 5)).astype(np.uint8)  # labels of 0 and 1


def sigmoid(smoothing: float = 0.0, weights: list[float] | None = None) -> NDArray[np.float32]:
    logits = tf.constant(LOGITS, tf.float32)
    return losses.sigmoid_cross_entropy(
        logits, tf.constant(SEVERAL), label_smoothing=smoothing, positive_weights=weights
    ).numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_several_labels_is_that_of_keras(smoothing: float) -> None:
    keras_loss = keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=smoothing, reduction=None)
    expected = keras_loss(SEVERAL.astype(np.float32), LOGITS.astype(np.float32)).numpy()
    np.testing.assert_allclose(sigmoid(smoothing), expected, rtol=1e-5, atol=1e-6)


def test_a_positive_weight_counts_where_the_label_is_there() -> None:
    weights = np.array([0.5, 1.0, 2.0, 7.0, 3.0])
    p = 1 / (1 + np.exp(-LOGITS))
    expected = -(weights * SEVERAL * np.log(p) + (1 - SEVERAL) * np.log(1 - p)).mean(axis=1)
    np.testing.assert_allclose(sigmoid(weights=weights.tolist()), expected, rtol=1e-4)


def test_a_mixed_image_has_mixed_targets_of_several_labels() -> None:
    others, own = SEVERAL[::-1].copy(), RANDOM.uniform(size=64).astype(np.float32)
    other = losses.Other(tf.constant(others), tf.constant(own))
    found = objective(WEIGHTS, label_smoothing=0.1).losses(
        tf.constant(LOGITS, tf.float32), tf.constant(SEVERAL), 64, other=other
    )
    targets = (own[:, None] * SEVERAL + (1 - own[:, None]) * others) * 0.9 + 0.05
    p = 1 / (1 + np.exp(-LOGITS))
    each = -(np.array(WEIGHTS) * targets * np.log(p) + (1 - targets) * np.log(1 - p))
    assert float(found.cross_entropy) == pytest.approx(each.mean(), rel=1e-4)


def test_balanced_positive_weights_are_examples_without_by_examples_with_the_label() -> None:
    assert losses.positive_weights("balanced", [10, 50, 0, 100], 100) == [9.0, 1.0, 1.0, 1.0]
    assert losses.positive_weights([2.0, 3.0], [1, 1], 5) == [2.0, 3.0]
    with pytest.raises(ConfigError, match=r"train\.positive_weights must have one number per class, 3, got 2"):
        losses.positive_weights([1.0, 2.0], [5, 5, 5], 10)


def test_low_precision_ends_at_the_logits() -> None:
    logits = tf.cast(LOGITS, tf.bfloat16)
    found = cross_entropy(logits, smoothing=0.1)
    np.testing.assert_array_equal(found, cross_entropy(tf.cast(logits, tf.float32), smoothing=0.1))
    assert found.dtype == np.float32


def test_l2_is_half_the_sum_of_squares() -> None:
    weights = [keras.Variable(np.full((2, 3), 2.0, np.float32)), keras.Variable([3.0, 4.0])]
    assert float(losses.l2(weights, 0.004)) == pytest.approx(0.004 * (6 * 4 + 25) / 2)


@pytest.mark.parametrize(
    ("chosen", "per_class", "expected"),
    [
        # scikit-learn's compute_class_weight("balanced"): n / (classes * count)
        ("balanced", [10, 30, 60], [100 / (3 * 10), 100 / (3 * 30), 100 / (3 * 60)]),
        ("balanced", [10, 0, 30], [2.0, 0.0, 2 / 3]),  # a class without examples takes no part
        ([1.0, 2.5], [7, 8], [1.0, 2.5]),
    ],
)
def test_class_weights_are_balanced_or_as_they_are_given(chosen, per_class, expected) -> None:
    assert losses.class_weights(chosen, per_class) == pytest.approx(expected)
    assert losses.class_weights(None, per_class) is None


ANSWERS = RANDOM.normal(scale=3, size=(64, 5))  # of a teacher


def divergence(temperature: float, *, several: bool) -> NDArray[np.float64]:
    """Kullback-Leibler divergence of the answers, in float64 from its definition."""
    ours, theirs = LOGITS / temperature, ANSWERS / temperature
    if not several:
        p, q = (np.exp(each) / np.exp(each).sum(axis=1, keepdims=True) for each in (theirs, ours))
        return temperature**2 * (p * np.log(p / q)).sum(axis=1)
    p, q = (1 / (1 + np.exp(-each)) for each in (theirs, ours))
    return temperature**2 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean(axis=1)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_distance_from_answers_is_their_divergence(temperature: float, several: bool) -> None:
    logits, answers = (tf.constant(each, tf.float32) for each in (LOGITS, ANSWERS))
    found = losses.distance(logits, answers, temperature=temperature, several=several).numpy()
    np.testing.assert_allclose(found, divergence(temperature, several=several), rtol=1e-3, atol=1e-4)


def test_the_loss_with_a_teacher_has_its_share_and_focus() -> None:
    taught = objective(teacher="champion", teacher_weight=0.3, teacher_temperature=2.0, teacher_focus=4.0)
    logits, answers = (tf.constant(each, tf.float32) for each in (LOGITS, ANSWERS))
    labels = tf.constant(LABELS)
    found = taught.losses(logits, labels, 64, answers=answers)
    right = ANSWERS.argmax(axis=1) == LABELS
    far = divergence(2.0, several=False) * (1 + 4 * right)
    assert float(found.cross_entropy) == pytest.approx((0.7 * expected(0.0) + 0.3 * far).mean(), rel=1e-4)
    assert float(taught.losses(logits, labels, 64).cross_entropy) == pytest.approx(
        expected(0.0).mean(), rel=1e-4
    )
    partners = RANDOM.permutation(64)
    theirs, given = tf.gather(labels, partners), tf.gather(answers, partners)
    mixed = taught.losses(logits, labels, 64, answers=answers, other=losses.Other(theirs, tf.zeros(64), given))
    alone = taught.losses(logits, theirs, 64, answers=given)
    assert float(mixed.cross_entropy) == pytest.approx(float(alone.cross_entropy))
