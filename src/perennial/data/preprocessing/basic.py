# Origin: official/mnist/dataset.py, research/slim/preprocessing, tutorials/image/cifar10
# of github.com/tensorflow/models (Apache-2.0): the steps and their constants.
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

from perennial.data.preprocessing import transforms
from perennial.data.preprocessing.randomness import Draws
from perennial.data.preprocessing.resampling import resize
from perennial.data.preprocessing.transforms import Distortion, Preprocessing, Target, Window, convert_channels

TOP, LEFT, FLIP, BRIGHTNESS, CONTRAST = range(5)  # draws of cifar
HOLE_ROW, HOLE_COLUMN, DRAWS = 3, 4, 5  # draws of standard, after the same three
MAX_BRIGHTNESS = 63.0  # cifar: change of brightness, 0..255
CONTRASTS = (0.2, 1.8)  # cifar
BORDER, HOLE = 8, 4  # standard: an eighth and a quarter of the side
SHIFT = 16  # shifted: a sixteenth of the side


def rescale(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Scale to 0..1; images of another size are first resized and rounded, as image programs do."""
    images = convert_channels(images, target.channels)
    shape = target.height, target.width
    if tuple(images.shape[1:3]) != shape:
        images = tf.round(tf.image.resize(images, shape, antialias=True))
    return transforms.floats(images) / 255.0


def lenet(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Crop or pad (with black) to size, and scale to -1 .. 127 / 128."""
    images = tf.image.resize_with_crop_or_pad(images, target.height, target.width)
    return (convert_channels(transforms.floats(images), target.channels) - 128.0) / 128.0


def cifar_windows(sizes: tf.Tensor, keys: tf.Tensor, target: Target, *, border: int) -> Window:
    """Draw a crop of each padded image; the details are its offsets."""
    shape = target.height, target.width
    outer = [tf.maximum(sizes[:, axis] + 2 * border, shape[axis]) for axis in (0, 1)]
    return _crops(sizes, Draws(keys, DRAWS), (outer[0], outer[1]), target, flips=True)


def cifar_cut(image: tf.Tensor, window: Window, target: Target, *, border: int) -> tf.Tensor:
    """Pad an image by `border` (more for a larger target), and crop it."""
    padded = transforms.pad(image[None], border, target.height, target.width)[0]
    begin = tf.concat([window.details, [0]], axis=0)
    return tf.slice(padded, begin, (target.height, target.width, -1))


def cifar_placed(images: tf.Tensor, keys: tf.Tensor, target: Target, *, border: int) -> tf.Tensor:
    """Pad by `border` (more for a larger target), randomly crop and flip."""
    window = cifar_windows(transforms.sizes(images), keys, target, border=border)
    images = transforms.pad(images, border, target.height, target.width)
    return transforms.crop(images, window, target)


def cifar_finished(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Randomly color, then standardize."""
    draws, images = Draws(keys, DRAWS), convert_channels(images, target.channels)
    images = transforms.adjust_brightness(images, draws.uniform(BRIGHTNESS, -MAX_BRIGHTNESS, MAX_BRIGHTNESS))
    contrasted = transforms.adjust_contrast(images, draws.uniform(CONTRAST, *CONTRASTS))
    return tf.image.per_image_standardization(contrasted)


def cifar_evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Crop the center, and standardize each image to mean 0 and deviation 1."""
    images = transforms.floats(tf.image.resize_with_crop_or_pad(images, target.height, target.width))
    return tf.image.per_image_standardization(convert_channels(images, target.channels))


def standard_finished(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Scale to -1..1, with a random gray square."""
    draws = Draws(keys, DRAWS)
    rows = _hole(draws.integers(HOLE_ROW, target.height), target.height)
    columns = _hole(draws.integers(HOLE_COLUMN, target.width), target.width)
    inside = (rows[:, :, None] & columns[:, None, :])[..., None]
    return tf.where(inside, 0.0, _scaled(images, target))


def standard_evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Scale to -1..1, and resize images of another size."""
    return _scaled(resize(images, target.height, target.width), target)


def moved_windows(sizes: tf.Tensor, keys: tf.Tensor, target: Target, *, part: int, flips: bool) -> Window:
    """Draw a shift by up to 1 / `part` of the sides; the details are offsets in the padded image."""
    high, wide = (length + 2 * (length // part) for length in (target.height, target.width))
    return _crops(sizes, Draws(keys, DRAWS), (high, wide), target, flips=flips)


def moved_cut(image: tf.Tensor, window: Window, target: Target, *, part: int) -> tf.Tensor:
    """Resize an image, pad it by reflection, and crop it."""
    resized = transforms.rounded(resize(image[None], target.height, target.width))[0]
    for axis, length in enumerate((target.height, target.width)):
        places = tf.range(length) + window.details[axis] - length // part
        # A mirrored border without padding, which would take as long as the rest.
        mirrored = length - 1 - tf.abs(length - 1 - tf.abs(places))
        resized = tf.gather(resized, mirrored, axis=axis)
    return resized


def moved_placed(images: tf.Tensor, keys: tf.Tensor, target: Target, *, part: int, flips: bool) -> tf.Tensor:
    """Resize images, and shift them randomly by up to 1 / `part` of their sides, padded by reflection."""
    window = moved_windows(transforms.sizes(images), keys, target, part=part, flips=flips)
    images = resize(images, target.height, target.width)
    high, wide = (length // part for length in images.shape[1:3])
    images = tf.pad(images, [(0, 0), (high, high), (wide, wide), (0, 0)], mode="REFLECT")
    return transforms.crop(images, window, target)


def _scaled(images: tf.Tensor, target: Target) -> tf.Tensor:
    return convert_channels(images, target.channels) / 127.5 - 1.0


def _crops(
    sizes: tf.Tensor,
    draws: Draws,
    outer: tuple[transforms.Length, transforms.Length],
    target: Target,
    *,
    flips: bool,
) -> Window:
    """Windows of whole images whose details are random offsets in an outer rectangle."""
    offsets = transforms.random_offsets(draws, (TOP, LEFT), outer, (target.height, target.width))
    mirrored = draws.coin(FLIP) if flips else tf.zeros_like(sizes[:, 0], tf.bool)
    return Window(tf.pad(sizes, [(0, 0), (2, 0)]), mirrored, tf.stack(offsets, axis=1))


def _hole(centers: tf.Tensor, length: int) -> tf.Tensor:
    """Bool [N, length]: true in the quarter around each center, as far as it lies inside."""
    starts = centers[:, None] - length // HOLE // 2
    indices = tf.range(length)
    return (indices >= starts) & (indices < starts + length // HOLE)


def _cifar(border: int) -> Preprocessing:
    return Preprocessing(
        evaluation=cifar_evaluation,
        distortion=Distortion(
            placed=partial(cifar_placed, border=border),
            windows=partial(cifar_windows, border=border),
            cut=partial(cifar_cut, border=border),
            finished=cifar_finished,
        ),
        resizes="never",
    )


def _moved(part: int, finished: Callable[..., tf.Tensor], *, flips: bool) -> Preprocessing:
    return Preprocessing(
        evaluation=standard_evaluation,
        distortion=Distortion(
            placed=partial(moved_placed, part=part, flips=flips),
            windows=partial(moved_windows, part=part, flips=flips),
            cut=partial(moved_cut, part=part),
            finished=finished,
        ),
        resizes="other sizes",
    )


RESCALE = Preprocessing(evaluation=rescale, resizes="other sizes")
LENET = Preprocessing(evaluation=lenet, resizes="never")
CIFARNET, CIFAR10_TUTORIAL = _cifar(4), _cifar(0)
STANDARD = _moved(BORDER, standard_finished, flips=True)
SHIFTED = _moved(SHIFT, lambda images, _, target: _scaled(images, target), flips=False)
PLAIN = Preprocessing(evaluation=standard_evaluation, resizes="other sizes")
