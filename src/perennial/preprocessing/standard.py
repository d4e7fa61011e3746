"""A modern default: resized, bordered by reflection, cropped, flipped, a square cut out, -1 to 1.

Padding and crops as in He et al. 2016 ("Deep Residual Learning", 4 of 32 pixels), cutout as in DeVries and
Taylor 2017 (8 of 32 pixels), both in proportion to other sizes. Values are scaled by constants rather than
by each image's own spread, which would hide how bright it is and amplify the noise of dark ones.
"""

import tensorflow as tf

from perennial.preprocessing.colour import in_channels
from perennial.preprocessing.geometry import cropped, random_offsets
from perennial.preprocessing.randomness import Draws
from perennial.preprocessing.resampling import resized
from perennial.preprocessing.target import Preprocessing, Target

TOP, LEFT, FLIP, HOLE_ROW, HOLE_COLUMN = DRAWS = range(5)
BORDER, HOLE = 8, 4  # an eighth and a quarter of the side


def training(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """What evaluation gives, moved by up to an eighth, flipped, with a grey square somewhere."""
    draws = Draws(keys, len(DRAWS))
    height, width = target.height, target.width
    high, wide = height // BORDER, width // BORDER
    images = tf.pad(evaluation(images, target), [(0, 0), (high, high), (wide, wide), (0, 0)], mode="REFLECT")
    outer = height + 2 * high, width + 2 * wide
    offsets = random_offsets(draws, (TOP, LEFT), outer, (height, width))
    images = cropped(images, offsets, height, width, draws.coin(FLIP))
    rows = _hole(draws.integers(HOLE_ROW, height), height)
    columns = _hole(draws.integers(HOLE_COLUMN, width), width)
    return tf.where((rows[:, :, None] & columns[:, None, :])[..., None], 0.0, images)


def evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """-1 to 1, resized if it has another size."""
    return resized(in_channels(images, target.channels), target.height, target.width) / 127.5 - 1.0


def _hole(centres: tf.Tensor, length: int) -> tf.Tensor:
    """Bool [N, length]: true in the quarter around each centre, as much of it as lies inside."""
    starts = centres[:, None] - length // HOLE // 2
    place = tf.range(length)
    return (place >= starts) & (place < starts + length // HOLE)


STANDARD = Preprocessing(training=training, evaluation=evaluation)
