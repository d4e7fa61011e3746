"""Pixels as fractions, the preprocessing of TensorFlow's official MNIST program."""

import tensorflow as tf

from perennial.preprocessing.colour import in_channels
from perennial.preprocessing.target import Target, undistorted


def evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """0..1; images of another size are first resized to whole numbers, as image programs do."""
    images = in_channels(images, target.channels)
    shape = target.height, target.width
    if tuple(images.shape[1:3]) != shape:
        images = tf.round(tf.image.resize(images, shape, antialias=True))
    return images / 255.0


RESCALE = undistorted(evaluation)
