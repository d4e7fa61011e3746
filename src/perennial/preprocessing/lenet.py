"""The preprocessing of TF-Slim's LeNet: cut or bordered to size, about -1 to 1."""

import tensorflow as tf

from perennial.preprocessing.colour import in_channels
from perennial.preprocessing.geometry import centred
from perennial.preprocessing.target import Target, undistorted


def evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """-1 to 127 / 128, where a border is black."""
    images = in_channels(images, target.channels)
    return (centred(images, target.height, target.width) - 128.0) / 128.0


LENET = undistorted(evaluation)
