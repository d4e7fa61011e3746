"""Local response normalization (Krizhevsky et al. 2012, section 3.3), as the CIFAR-10 networks have it."""

import keras
import tensorflow as tf


class LocalResponseNormalization(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """Each value over (1 + 0.001 / 9 * the sum of squares of nine neighbouring channels) to the power 0.75."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalized [N, height, width, channels], of the inputs' type."""
        # There are kernels for float32 alone on the GPU.
        exact = tf.cast(inputs, tf.float32)
        normal = tf.nn.local_response_normalization(exact, depth_radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75)
        return tf.cast(normal, inputs.dtype)
