"""Local response normalization (Krizhevsky et al. 2012, section 3.3), as the CIFAR-10 networks have it."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

RADIUS, ALPHA, BETA = 4, 0.001 / 9, 0.75


class LocalResponseNormalization(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """Each value over (1 + 0.001 / 9 * the sum of squares of nine neighbouring channels) to the power 0.75."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalized [N, height, width, channels], of the inputs' type."""
        return tf.cast(_normalized(tf.cast(inputs, tf.float32)), inputs.dtype)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _normalized(inputs: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """What tf.nn.local_response_normalization gives, whose kernels take four times as long on a CPU."""
    scale = 1 + ALPHA * _window_sums(tf.square(inputs))
    root = tf.math.rsqrt(scale)
    factor = root * tf.sqrt(root)
    outputs = inputs * factor

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * factor - 2 * ALPHA * BETA * inputs * _window_sums(upstream * outputs / scale)

    return outputs, gradient


def _window_sums(values: tf.Tensor) -> tf.Tensor:
    """The sum over each channel and its neighbours, as a matrix product with a band of ones."""
    numbers = np.arange(values.shape[-1])
    band = abs(numbers[:, None] - numbers) <= RADIUS
    return tf.tensordot(values, tf.constant(band, tf.float32), 1)
