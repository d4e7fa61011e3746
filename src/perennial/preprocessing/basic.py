"""The simple preprocessings: rescale, LeNet, CIFAR-10, `standard`, a modern default, `shifted` and `plain`.

- `rescale` is that of TensorFlow's official MNIST program, `lenet` and `cifarnet` those of TF-Slim,
  `cifar10_tutorial` that of TensorFlow's tutorial.
- `standard` pads by reflection, crops and flips as in He et al. 2016 ("Deep Residual Learning", 4 of 32 pixels)
  and cuts out a square as in DeVries and Taylor 2017 (8 of 32 pixels), both in proportion to other sizes. It
  scales values by constants: scaling each image by its own spread hides how bright it is and amplifies noise.
- `shifted` moves images by up to a sixteenth (2 of 32 pixels) and does nothing else, as in Jordan 2024 ("94% on
  CIFAR-10 in 3.29 seconds"), for trainings of a few epochs; `train.augmentation.alternating_flip` goes with it.
- `plain` trains on the images that it evaluates, so that the features of frozen layers are computed once.
"""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from perennial.preprocessing import transforms
from perennial.preprocessing.randomness import Draws
from perennial.preprocessing.resampling import resize
from perennial.preprocessing.transforms import Preprocessing, Target, convert_channels, size

TOP, LEFT, FLIP, BRIGHTNESS, CONTRAST = range(5)  # draws of cifar
HOLE_ROW, HOLE_COLUMN, DRAWS = 3, 4, 5  # draws of standard, after the same three
MAX_BRIGHTNESS = 63.0  # cifar: change of brightness, 0..255
CONTRASTS = (0.2, 1.8)  # cifar
BORDER, HOLE = 8, 4  # standard: an eighth and a quarter of the side
SHIFT = 16  # shifted: a sixteenth of the side


def rescale(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Scale to 0..1.

    Images of another size are first resized, with rounding to whole numbers as image programs do.
    """
    images = convert_channels(images, target.channels)
    shape = target.height, target.width
    if tuple(images.shape[1:3]) != shape:
        images = tf.round(tf.image.resize(images, shape, antialias=True))
    return images / 255.0


def lenet(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Crop or pad (with black) to size, and scale to -1 .. 127 / 128."""
    images = convert_channels(images, target.channels)
    return (tf.image.resize_with_crop_or_pad(images, target.height, target.width) - 128.0) / 128.0


def cifar_training(images: tf.Tensor, keys: tf.Tensor, target: Target, *, border: int) -> tf.Tensor:
    """Pad by `border` (more for a larger target), randomly crop, flip and color, then standardize."""
    draws = Draws(keys, DRAWS)
    images = transforms.pad(convert_channels(images, target.channels), border, target.height, target.width)
    offsets = transforms.random_offsets(draws, (TOP, LEFT), size(images), (target.height, target.width))
    images = transforms.crop(images, offsets, target.height, target.width, draws.coin(FLIP))
    images = transforms.adjust_brightness(images, draws.uniform(BRIGHTNESS, -MAX_BRIGHTNESS, MAX_BRIGHTNESS))
    return tf.image.per_image_standardization(
        transforms.adjust_contrast(images, draws.uniform(CONTRAST, *CONTRASTS))
    )


def cifar_evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Crop the center, and standardize each image to mean 0 and deviation 1."""
    return tf.image.per_image_standardization(
        tf.image.resize_with_crop_or_pad(convert_channels(images, target.channels), target.height, target.width)
    )


def standard_training(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Like evaluation, with random shifts by up to an eighth, flips, and a random gray square."""
    draws = Draws(keys, DRAWS)
    height, width = target.height, target.width
    images = _moved(standard_evaluation(images, target), draws, BORDER, draws.coin(FLIP))
    rows = _hole(draws.integers(HOLE_ROW, height), height)
    columns = _hole(draws.integers(HOLE_COLUMN, width), width)
    return tf.where((rows[:, :, None] & columns[:, None, :])[..., None], 0.0, images)


def standard_evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Scale to -1..1, and resize images of another size."""
    return resize(convert_channels(images, target.channels), target.height, target.width) / 127.5 - 1.0


def shifted_training(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Like evaluation, with random shifts by up to a sixteenth."""
    images = standard_evaluation(images, target)
    return _moved(images, Draws(keys, FLIP), SHIFT, tf.zeros_like(keys[:, 0], tf.bool))


def _moved(images: tf.Tensor, draws: Draws, part: int, mirrored: tf.Tensor) -> tf.Tensor:
    """Randomly shift images by up to 1 / `part` of their sides, padded by reflection.

    Mirror where bool [N] is true.
    """
    height, width = images.shape[1:3]
    high, wide = height // part, width // part
    images = tf.pad(images, [(0, 0), (high, high), (wide, wide), (0, 0)], mode="REFLECT")
    outer = height + 2 * high, width + 2 * wide
    offsets = transforms.random_offsets(draws, (TOP, LEFT), outer, (height, width))
    return transforms.crop(images, offsets, height, width, mirrored)


def _hole(centers: tf.Tensor, length: int) -> tf.Tensor:
    """Bool [N, length]: true in the quarter around each center, as far as it lies inside."""
    starts = centers[:, None] - length // HOLE // 2
    indices = tf.range(length)
    return (indices >= starts) & (indices < starts + length // HOLE)


def _undistorted(evaluation: Callable[[tf.Tensor, Target], tf.Tensor]) -> Preprocessing:
    """A preprocessing without distortions: training uses the same images as evaluation."""
    return Preprocessing(
        training=lambda images, _, target: evaluation(images, target), evaluation=evaluation, distorts=False
    )


RESCALE = _undistorted(rescale)
LENET = _undistorted(lenet)
CIFARNET = Preprocessing(training=partial(cifar_training, border=4), evaluation=cifar_evaluation)
CIFAR10_TUTORIAL = Preprocessing(training=partial(cifar_training, border=0), evaluation=cifar_evaluation)
STANDARD = Preprocessing(training=standard_training, evaluation=standard_evaluation)
SHIFTED = Preprocessing(training=shifted_training, evaluation=standard_evaluation)
PLAIN = _undistorted(standard_evaluation)
