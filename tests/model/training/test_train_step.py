"""Moving averages of the weights, against NumPy and TensorFlow's own."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.config.training import AveragesConfig, TrainConfig
from perennial.model.models import MODELS
from perennial.model.training.train_step import Averages, Trainer
from perennial.model.training.triggers import Length

UPDATES = np.random.default_rng(5).normal(size=(20, 3, 2)).astype(np.float32)  # of the kernel


def model() -> keras.Model:
    """One dense layer whose kernel is to be averaged, and a normalization with statistics."""
    layers = [keras.Input([3]), keras.layers.Dense(2, name="dense"), keras.layers.BatchNormalization()]
    return keras.Sequential(layers)


def train(net: keras.Model, averages: Averages) -> None:
    """Adds each of UPDATES to the kernel."""
    kernel = net.get_layer("dense").kernel

    @tf.function(autograph=False)
    def step(change: tf.Tensor, number: tf.Tensor) -> None:
        kernel.assign_add(change)
        averages.update(number)

    for number, change in enumerate(UPDATES):
        step(tf.constant(change), tf.constant(number, tf.int64))


def kernels(first: NDArray[np.float32]) -> NDArray[np.float64]:
    return first + np.cumsum(UPDATES.astype(np.float64), axis=0)


def updated(decay: float | None, *, dynamic: bool = False) -> tuple[keras.Model, Averages, NDArray[np.float32]]:
    """A model after all updates, its averages, and the first values of its kernel."""
    net = model()
    first = net.get_layer("dense").kernel.numpy()
    averages = Averages(net, AveragesConfig(decay=decay, dynamic=dynamic))
    train(net, averages)
    return net, averages, first


@pytest.mark.parametrize(
    ("decay", "dynamic"),
    [(0.9, False), (0.9999, True), (0.5, True)],  # dynamic reaches 0.5 within the twenty
)
def test_averages_are_what_the_formula_gives(decay: float, dynamic: bool) -> None:
    _, averages, first = updated(decay, dynamic=dynamic)
    expected = first.astype(np.float64)
    for done, kernel in enumerate(kernels(first), start=1):
        least = min(decay, (1 + done) / (10 + done)) if dynamic else decay
        expected = least * expected + (1 - least) * kernel
    np.testing.assert_allclose(averages.variables[0].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_statistics_of_normalization_are_not_averaged_again() -> None:
    net = model()
    averages = Averages(net, AveragesConfig(decay=0.9, dynamic=False))
    assert len(averages.variables) == len(net.trainable_variables) == len(net.weights) - 2


def weights(net: keras.Model) -> list[bytes]:
    return [weight.numpy().tobytes() for weight in net.trainable_variables]


def test_the_model_has_the_averages_while_it_is_evaluated_and_its_own_weights_before_and_after() -> None:
    net, averages, _ = updated(0.9)
    own = weights(net)
    with averages.swapped():
        assert weights(net) == [average.numpy().tobytes() for average in averages.variables] != own
    assert weights(net) == own


class Stopped(BaseException):
    """What a signal raises."""


def test_the_weights_come_back_when_the_evaluation_is_interrupted() -> None:
    net, averages, _ = updated(0.9)
    own = weights(net)
    with pytest.raises(Stopped), averages.swapped():
        raise Stopped
    assert weights(net) == own


def test_the_weights_come_back_when_their_return_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    net, averages, _ = updated(0.9)
    own = weights(net)

    def stop() -> None:
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped), averages.swapped():
        patch.setattr(averages, "restore", stop)
    averages.restore()
    assert weights(net) == own


def test_without_a_decay_nothing_is_kept() -> None:
    net, averages, _ = updated(None, dynamic=True)
    own = weights(net)
    with averages.swapped():
        assert weights(net) == own
    assert averages.variables == []


def test_normalization_is_synced_also_in_a_network_inside_another() -> None:
    inside, image = model(), keras.Input([3])
    net = keras.Model(image, inside(image))
    Trainer(
        MODELS["lenet"], lambda: net, None, TrainConfig(batch_norm="synced"), tf.distribute.get_strategy(),
        length=Length(steps=1, steps_per_epoch=1, limit="steps"), examples=3, class_weights=None,
    )  # fmt: skip
    assert inside.layers[-1].synchronized
