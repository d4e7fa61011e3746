"""Geometry and color of whole batches: each image of a batch gets its own crop, flip and amounts.

Color functions compute tf.image.adjust_*, which take one amount for the whole batch; factors and shifts are
float32 [N].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from perennial.preprocessing.randomness import Draws

LUMA = (0.2989, 0.5870, 0.1140)  # of red, green and blue, as in tf.image.rgb_to_grayscale
Length: TypeAlias = int | tf.Tensor  # in pixels; a tensor if it is only known at run time
Offsets = tuple[tf.Tensor, tf.Tensor]  # rows from the top, columns from the left: int32 [N] each


@dataclass(frozen=True, kw_only=True)
class Target:
    """The specification of a model's input images."""

    height: int
    width: int
    channels: int  # 1 turns RGB into gray
    fast: bool  # inception: the cheap distortions


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Functions from raw pixels 0..255 to a target's input, float32 [N, height, width, channels]."""

    training: Callable[[tf.Tensor, tf.Tensor, Target], tf.Tensor]  # images, keys int32 [N, 2], target
    evaluation: Callable[[tf.Tensor, Target], tf.Tensor]
    distorts: bool = True  # whether training differs from evaluation


def size(images: tf.Tensor) -> tuple[Length, Length]:
    """Height and width of images [N, height, width, channels]."""
    shape = tf.shape(images)
    height, width = (shape[axis] if images.shape[axis] is None else images.shape[axis] for axis in (1, 2))
    return height, width


def maximum(one: Length, other: Length) -> Length:
    """The larger of two lengths; a number if both are."""
    return tf.maximum(one, other) if tf.is_tensor(one) or tf.is_tensor(other) else max(one, other)


def minimum(one: Length, other: Length) -> Length:
    """The smaller of two lengths; a number if both are."""
    return -maximum(-one, -other)


def pad(images: tf.Tensor, border: int, height: int, width: int) -> tf.Tensor:
    """Images with `border` rows and columns of zeros on each side, and more up to height and width."""

    def edges(length: Length, least: int) -> tuple[Length, Length]:
        missing = maximum(2 * border, least - length)
        return missing // 2, missing - missing // 2

    high, wide = size(images)
    return tf.pad(images, [(0, 0), edges(high, height), edges(wide, width), (0, 0)])


def random_offsets(
    draws: Draws, numbers: tuple[int, int], outer: tuple[Length, Length], inner: tuple[Length, Length]
) -> Offsets:
    """Uniformly random offsets of a smaller rectangle (height, width) in a larger one."""
    top, left = (
        draws.integers(number, large - small + 1)
        for number, large, small in zip(numbers, outer, inner, strict=True)
    )
    return top, left


def crop(images: tf.Tensor, offsets: Offsets, height: int, width: int, mirrored: tf.Tensor) -> tf.Tensor:
    """Images [N, height, width, channels] from the offsets on, mirrored where bool [N] is true."""
    top, left = offsets
    rows = top[:, None] + tf.range(height)
    columns = flip_columns(left[:, None] + tf.range(width), mirrored)
    return tf.gather(tf.gather(images, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)


def flip_columns(columns: tf.Tensor, mirrored: tf.Tensor) -> tf.Tensor:
    """Per-column values [N, width, ...], in reverse order where bool [N] is true."""
    shape = (-1, *(1 for _ in columns.shape[1:]))
    return tf.where(tf.reshape(mirrored, shape), columns[:, ::-1], columns)


def convert_channels(images: tf.Tensor, channels: int) -> tf.Tensor:
    """RGB images in gray if `channels` is 1; others unchanged."""
    if images.shape[-1] == channels:
        return images
    # Unlike tf.image, avoid a matrix product, which a GPU would round to ten bits.
    return tf.reduce_sum(images * tf.constant(LUMA), axis=-1, keepdims=True)


def adjust_brightness(images: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
    """Add a shift to all values."""
    return images + _each(shifts)


def adjust_contrast(images: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Multiply the distances from the mean of each channel."""
    means = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return (images - means) * _each(factors) + means


def adjust_saturation(images: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Multiply the HSV saturation, at most to 1; gray images stay.

    Hue and value stay when each channel comes nearer to the largest by the same ratio, so nothing is converted.
    """
    if images.shape[-1] == 1:
        return images
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    spread = value - tf.reduce_min(images, axis=-1, keepdims=True)
    # Black and darker values have no saturation: spread / spread would make one.
    limited = tf.minimum(value, spread * _each(factors))
    ratio = tf.where(value > 0, tf.math.divide_no_nan(limited, spread), 0.0)
    return value - (value - images) * ratio


def adjust_hue(images: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
    """Shift the HSV hue by these fractions of the circle; gray images stay."""
    if images.shape[-1] == 1:
        return images
    # Without the gray part, which has no hue, no value is negative: HSV would lose those.
    gray = tf.reduce_min(images, axis=-1, keepdims=True)
    hsv = tf.image.rgb_to_hsv(images - gray)
    hue = tf.math.floormod(hsv[..., :1] + _each(shifts), 1.0)
    return tf.image.hsv_to_rgb(tf.concat([hue, hsv[..., 1:]], axis=-1)) + gray


def _each(amounts: tf.Tensor) -> tf.Tensor:
    return tf.reshape(amounts, (-1, 1, 1, 1))
