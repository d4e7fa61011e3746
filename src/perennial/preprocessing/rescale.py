"""Pixels as fractions, the preprocessing of TensorFlow's official MNIST program."""

import tensorflow as tf


def rescale(images: tf.Tensor) -> tf.Tensor:
    """Float32 in 0..1 from uint8 in 0..255."""
    return tf.cast(images, tf.float32) / 255.0
