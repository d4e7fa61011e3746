"""Exponential moving averages of the weights, as tf.train.ExponentialMovingAverage keeps them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.config.optimization import AveragesConfig


class Averages:
    """The averages of the weights that are trainable when it is made, beginning with their values.

    Statistics of batch normalization are averages already and used as they are. Made under `strategy.scope()`.
    Without a decay there are no averages, and nothing happens.
    """

    def __init__(self, model: keras.Model, config: AveragesConfig) -> None:
        self._decay, self._dynamic = config.decay, config.dynamic
        self._weights: list[keras.Variable] = model.trainable_variables if config.decay else []
        self._strategy = tf.distribute.get_strategy()
        self._raw: list[NDArray[np.float32]] | None = None
        self.variables = [tf.Variable(weight.numpy(), trainable=False) for weight in self._weights]

    def update(self, step: tf.Tensor) -> None:
        """Moves the averages after an update that followed `step` others; called outside of replicas.

        Each device moves its own copies, which are equal as the weights are: nothing is sent.
        """
        if self._decay is None:
            return
        share = tf.constant(1 - self._decay, tf.float64)
        if self._dynamic:
            # 1 - (1 + n) / (10 + n) for n updates, of which TensorFlow counts the one just made.
            share = tf.maximum(share, 9 / (11 + tf.cast(step, tf.float64)))
        share = tf.cast(share, tf.float32)
        for average, weight in zip(self.variables, self._weights, strict=True):
            self._strategy.extended.update(average, _move, args=(weight.value, share), group=False)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Gives the weights their averages while the block runs."""
        self._raw = [weight.numpy() for weight in self._weights]
        try:
            self._assign(self.variables)
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Gives the weights their own values back, if a signal broke the end of `swapped`."""
        if self._raw is not None:
            self._assign(self._raw)
            self._raw = None

    def _assign(self, values: Sequence[tf.Variable | NDArray[np.float32]]) -> None:
        for weight, value in zip(self._weights, values, strict=True):
            weight.assign(value)


def _move(average: tf.Variable, weight: tf.Tensor, share: tf.Tensor) -> None:
    average.assign_sub((average - weight) * share)
