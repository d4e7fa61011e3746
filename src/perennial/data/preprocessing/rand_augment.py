"""RandAugment (Cubuk et al. 2019): several random operations on each image, all with the same magnitude.

The fourteen operations of the paper. At magnitude 10: rotation by 30 degrees, shear by 0.3, translation by 0.45
of a side, solarization from 0 on, four bits of posterization, and 0.9 more or less of color, contrast,
brightness and sharpness. Pixels from outside an image are gray (128). Each image of a batch draws its own
operations; color operations are all computed and then selected, geometric ones are a single resampling.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from perennial.base.config.training import AugmentationConfig
from perennial.data.preprocessing import transforms
from perennial.data.preprocessing.randomness import Draws
from perennial.data.preprocessing.transforms import spatial_size

LARGEST = 10  # magnitude
STREAM = 1  # of random numbers: apart from those of the preprocessings
OUTSIDE = 128.0
GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
GREATEST = (math.pi / 6, 0.3, 0.3, 0.45, 0.45)  # angle, shear, and shares of the width and height
BINS = 256


def distorted(images: tf.Tensor, keys: tf.Tensor, chosen: AugmentationConfig) -> tf.Tensor:
    """Apply random operations to images float32 0..255 [N, height, width, 1 or 3]; keys int32 [N, 2]."""
    draws, level = Draws(keys, 2 * chosen.operations, stream=STREAM), chosen.magnitude / LARGEST
    names = tuple(COLORS) + GEOMETRIC
    for number in range(chosen.operations):
        drawn = draws.integers(2 * number, len(names) + 1)  # the last one leaves the image as it is
        signs = tf.where(draws.coin(2 * number + 1), level, -level)
        images = moved(images, drawn - len(COLORS), signs)
        changed = images
        for index, operation in enumerate(COLORS.values()):
            selected = tf.reshape(drawn == index, (-1, 1, 1, 1))
            changed = tf.where(selected, operation(images, signs), changed)
        images = changed
    return images


def moved(images: tf.Tensor, chosen: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Rotate, shear or translate about the center, by nearest pixel; `chosen` are indices into GEOMETRIC."""
    high, wide = (tf.cast(length, tf.float32) for length in spatial_size(images))
    angle, shear_x, shear_y, move_x, move_y = (
        tf.where(chosen == index, signs * greatest, 0.0)[:, None, None]
        for index, greatest in enumerate(GREATEST)
    )
    rows = (tf.range(high) - (high - 1) / 2)[None, :, None]
    columns = (tf.range(wide) - (wide - 1) / 2)[None, None, :]
    cosine, sine = tf.cos(angle), tf.sin(angle)
    # The source position of each pixel of the result.
    from_column = columns * cosine - rows * sine + rows * shear_x + move_x * wide + (wide - 1) / 2
    from_row = columns * sine + rows * cosine + columns * shear_y + move_y * high + (high - 1) / 2
    row, column = (tf.cast(tf.floor(place + 0.5), tf.int32) for place in (from_row, from_column))
    high, wide = tf.cast(high, tf.int32), tf.cast(wide, tf.int32)
    inside = (row >= 0) & (row < high) & (column >= 0) & (column < wide)
    index = tf.clip_by_value(row, 0, high - 1) * wide + tf.clip_by_value(column, 0, wide - 1)
    shape = tf.shape(images)
    flat = tf.reshape(images, (shape[0], high * wide, images.shape[-1]))
    nearest = tf.reshape(tf.gather(flat, tf.reshape(index, (shape[0], -1)), batch_dims=1), shape)
    used = (chosen >= 0) & (chosen < len(GEOMETRIC))
    nearest = tf.where(inside[..., None], nearest, OUTSIDE)
    return tf.ensure_shape(tf.where(tf.reshape(used, (-1, 1, 1, 1)), nearest, images), images.shape)


def autocontrast(images: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    """Stretch each channel to 0..255; a channel with a single value stays unchanged."""
    low = tf.reduce_min(images, axis=(1, 2), keepdims=True)
    high = tf.reduce_max(images, axis=(1, 2), keepdims=True)
    return tf.where(high > low, tf.math.divide_no_nan(images - low, high - low) * 255.0, images)


def equalize(images: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    """Equalize the histogram of each channel as Pillow does; values are rounded first."""
    shape = tf.shape(images)
    values = tf.cast(tf.clip_by_value(tf.round(images), 0.0, 255.0), tf.int32)
    flat = tf.reshape(tf.transpose(values, (0, 3, 1, 2)), (shape[0] * shape[3], -1))  # a row for each channel
    channels, pixels = tf.shape(flat)[0], tf.shape(flat)[1]
    bins = flat + tf.range(channels)[:, None] * BINS
    # Whole numbers, so the sum does not depend on the order.
    ones = tf.ones_like(tf.reshape(bins, [-1]), tf.float32)
    counts = tf.math.unsorted_segment_sum(ones, tf.reshape(bins, [-1]), channels * BINS)
    counts = tf.cast(tf.reshape(counts, (channels, BINS)), tf.int32)
    last = tf.gather(counts, tf.reduce_max(flat, axis=1), batch_dims=1)
    step = ((pixels - last) // (BINS - 1))[:, None]
    below = tf.cumsum(counts, axis=1, exclusive=True)
    table = tf.minimum((step // 2 + below) // tf.maximum(step, 1), BINS - 1)
    table = tf.where(step > 0, table, tf.range(BINS)[None])
    mapped = tf.reshape(tf.gather(table, flat, batch_dims=1), (shape[0], shape[3], shape[1], shape[2]))
    return tf.ensure_shape(tf.cast(tf.transpose(mapped, (0, 2, 3, 1)), tf.float32), images.shape)


def posterize(images: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Drop up to four of eight bits."""
    dropped = tf.pow(2.0, tf.round(tf.abs(signs) * 4.0))
    dropped = tf.reshape(dropped, (-1, 1, 1, 1))
    return tf.floor(images / dropped) * dropped


def solarize(images: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Invert values from a threshold on: none at magnitude 0, all at the largest magnitude."""
    threshold = tf.reshape(256.0 * (1.0 - tf.abs(signs)), (-1, 1, 1, 1))
    return tf.where(images < threshold, images, 255.0 - images)


def color(images: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Decrease or increase the saturation; gray images stay unchanged."""
    if images.shape[-1] == 1:
        return images
    return _blend(transforms.convert_channels(images, 1), images, signs)


def contrast(images: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Decrease or increase the contrast relative to the mean gray."""
    gray = transforms.convert_channels(images, 1)
    return _blend(tf.reduce_mean(gray, axis=(1, 2), keepdims=True), images, signs)


def brightness(images: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Decrease or increase the brightness."""
    return _blend(tf.zeros_like(images), images, signs)


def sharpness(images: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Decrease or increase the sharpness; the outermost pixels stay unchanged, as in Pillow."""
    height, width = spatial_size(images)
    around = tf.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="SYMMETRIC")
    summed = 4.0 * images  # the kernel is 5 in the middle of ones
    for row in range(3):
        for column in range(3):
            summed += tf.slice(around, (0, row, column, 0), (-1, height, width, -1))
    smooth = summed / 13.0
    rows = (tf.range(height) > 0) & (tf.range(height) < height - 1)
    columns = (tf.range(width) > 0) & (tf.range(width) < width - 1)
    inside = (rows[:, None] & columns[None])[None, :, :, None]
    return tf.ensure_shape(_blend(tf.where(inside, smooth, images), images, signs), images.shape)


def _blend(other: tf.Tensor, images: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    factors = 1.0 + 0.9 * tf.reshape(signs, (-1, 1, 1, 1))
    return tf.clip_by_value(other + (images - other) * factors, 0.0, 255.0)


# Images float32 0..255 and the magnitude of each, -1..1, to images.
COLORS: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "autocontrast": autocontrast,
    "equalize": equalize,
    "posterize": posterize,
    "solarize": solarize,
    "color": color,
    "contrast": contrast,
    "brightness": brightness,
    "sharpness": sharpness,
}
