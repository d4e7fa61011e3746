"""The preprocessing of VGG (Simonyan and Zisserman 2014) and, in TF-Slim, of ResNets: RGB minus its means.

The sides of 256 to 512 pixels were chosen for results of 224; other results take them in proportion.
"""

import tensorflow as tf

from perennial.preprocessing.randomness import Draws
from perennial.preprocessing.resampling import bilinear, line, resample
from perennial.preprocessing.transforms import (
    LUMA,
    Length,
    Preprocessing,
    Target,
    center,
    convert_channels,
    minimum,
    random_offsets,
    size,
)

SIDE, TOP, LEFT, FLIP = DRAWS = range(4)
PUBLISHED, SMALLEST, LARGEST = 224, 256, 512  # of the result; the short side of what it is cut from
MEANS = (123.68, 116.78, 103.94)  # of ImageNet's red, green and blue


def training(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Resized to a random short side, randomly cropped and flipped, less the means."""
    draws = Draws(keys, len(DRAWS))
    images = convert_channels(images, target.channels)
    smallest, largest = sides(target)
    full = _shape(images, smallest + draws.integers(SIDE, largest - smallest + 1))
    offsets = random_offsets(draws, (TOP, LEFT), full, (target.height, target.width))
    lines = [
        line(whole, (0, whole), resized, count, offset)
        for whole, resized, count, offset in zip(
            size(images), full, (target.height, target.width), offsets, strict=True
        )
    ]
    return _centerd_values(resample(images, lines, bilinear, draws.coin(FLIP)))


def evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Resized to the smallest short side, the middle of it, less the means."""
    images = convert_channels(images, target.channels)
    resized = tf.image.resize(images, _shape(images, sides(target)[0]))
    return _centerd_values(center(resized, target.height, target.width))


def sides(target: Target) -> tuple[int, int]:
    """The smallest and largest short side that a result is cut from."""
    proportion = min(target.height, target.width) / PUBLISHED
    return round(SMALLEST * proportion), round(LARGEST * proportion)


def _shape(images: tf.Tensor, side: Length) -> tuple[Length, Length]:
    """Height and width that images have when their short side has that many pixels; whole numbers, exactly."""
    height, width = size(images)
    short = minimum(height, width)
    return (2 * height * side + short) // (2 * short), (2 * width * side + short) // (2 * short)


def _centerd_values(images: tf.Tensor) -> tf.Tensor:
    """Values less the mean of their channel; for gray that of the means as they look in gray."""
    gray = sum(share * mean for share, mean in zip(LUMA, MEANS, strict=True))
    return images - tf.constant(MEANS if images.shape[-1] == 3 else gray, tf.float32)


VGG = Preprocessing(training=training, evaluation=evaluation)
