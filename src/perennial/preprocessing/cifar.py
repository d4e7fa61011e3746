"""The preprocessings of the CIFAR-10 tutorial and of TF-Slim's CifarNet, which adds a border of 4 first.

Where the result is larger than the image and its border, there is more border.
"""

from functools import partial

import tensorflow as tf

from perennial.preprocessing.colour import brightened, contrasted, in_channels, standardized
from perennial.preprocessing.geometry import bordered, centred, cropped, random_offsets, size
from perennial.preprocessing.randomness import Draws
from perennial.preprocessing.target import Preprocessing, Target

TOP, LEFT, FLIP, BRIGHTNESS, CONTRAST = DRAWS = range(5)
MAX_DELTA = 63.0  # of brightness, 0..255
LOWER, UPPER = 0.2, 1.8  # contrast


def training(images: tf.Tensor, keys: tf.Tensor, target: Target, *, border: int) -> tf.Tensor:
    """Randomly cropped, flipped, brightened and contrasted, then each image with mean 0 and deviation 1."""
    draws = Draws(keys, len(DRAWS))
    images = bordered(in_channels(images, target.channels), border, target.height, target.width)
    offsets = random_offsets(draws, (TOP, LEFT), size(images), (target.height, target.width))
    images = cropped(images, offsets, target.height, target.width, draws.coin(FLIP))
    images = brightened(images, draws.uniform(BRIGHTNESS, -MAX_DELTA, MAX_DELTA))
    images = contrasted(images, draws.uniform(CONTRAST, LOWER, UPPER))
    return standardized(images)


def evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """The middle, each image with mean 0 and deviation 1."""
    return standardized(centred(in_channels(images, target.channels), target.height, target.width))


CIFARNET = Preprocessing(training=partial(training, border=4), evaluation=evaluation)
CIFAR10_TUTORIAL = Preprocessing(training=partial(training, border=0), evaluation=evaluation)
