"""Geometry and color of whole batches: each image of a batch gets its own crop, flip and amounts.

Color functions compute tf.image.adjust_*, which take one amount for the whole batch; factors and shifts are
float32 [N].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import tensorflow as tf

from perennial.data.preprocessing.randomness import Draws

LUMA = (0.2989, 0.5870, 0.1140)  # of red, green and blue, as in tf.image.rgb_to_grayscale
Length: TypeAlias = int | tf.Tensor  # in pixels; a tensor if it is only known at run time
Offsets = tuple[tf.Tensor, tf.Tensor]  # rows from the top, columns from the left: int32 [N] each
UNITS = 2.0**24  # of 1, when values of -128 to 128 are added up
Planes = list[tf.Tensor]  # the channels of images, [N, height, width] each: XLA computes these much faster


@dataclass(frozen=True, kw_only=True)
class Target:
    """The specification of a model's input images."""

    height: int
    width: int
    channels: int  # 1 turns RGB into gray
    fast: bool  # inception: the cheap distortions
    centered: bool  # inception and vgg: resize with half-pixel centers, not as TensorFlow 1


class Window(NamedTuple):
    """The part of each image that becomes a result, and how; row N of every tensor belongs to image N."""

    rectangle: tf.Tensor  # int32 [N, 4]: top, left, height and width of what is decoded
    mirrored: tf.Tensor  # bool [N]: whether the result is mirrored
    details: tf.Tensor  # [N, numbers]: what else `Distortion.cut` needs


@dataclass(frozen=True, kw_only=True)
class Distortion:
    """The distortions of a preprocessing: first geometry, then colors and values.

    Geometry is done for a batch of images of one size (`placed`), or image by image (`windows`, `cut`). Both
    take the same random decisions and give the same pixels, `cut` rounded to whole numbers.
    """

    # images 0..255 [N, height, width, channels], keys int32 [N, 2], target -> float32 0..255 of its size
    placed: Callable[[tf.Tensor, tf.Tensor, Target], tf.Tensor]
    windows: Callable[[tf.Tensor, tf.Tensor, Target], Window]  # sizes int32 [N, 2], keys, target
    # a decoded rectangle, its row of the windows, target -> uint8, size of the target, not yet mirrored
    cut: Callable[[tf.Tensor, Window, Target], tf.Tensor]
    # images as from `placed` or `cut`, keys, target -> float32, the model input
    finished: Callable[[tf.Tensor, tf.Tensor, Target], tf.Tensor]


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Functions from raw pixels 0..255 to a target's input, float32 [N, height, width, channels]."""

    evaluation: Callable[[tf.Tensor, Target], tf.Tensor]  # of uint8 or float32
    distortion: Distortion | None = None  # None: training uses the same images as evaluation
    resizes: Literal["always", "other sizes", "never"]  # "other sizes": images of another size than the target


def spatial_size(images: tf.Tensor) -> tuple[Length, Length]:
    """Height and width of images [N, height, width, channels]."""
    shape = tf.shape(images)
    height, width = (shape[axis] if images.shape[axis] is None else images.shape[axis] for axis in (1, 2))
    return height, width


def floats(images: tf.Tensor) -> tf.Tensor:
    """Images as float32."""
    return tf.cast(images, tf.float32)


def rounded(images: tf.Tensor) -> tf.Tensor:
    """Images 0..255 as uint8, rounded to the nearest."""
    return tf.cast(images + 0.5, tf.uint8)


def sizes(images: tf.Tensor) -> tf.Tensor:
    """Height and width of each image of a batch, int32 [N, 2]."""
    shape = tf.shape(images)
    return tf.broadcast_to(shape[1:3], (shape[0], 2))


def resize_bilinear(images: tf.Tensor, height: Length, width: Length, *, centered: bool) -> tf.Tensor:
    """Resize images of any type to float32; `centered` as in TensorFlow 2, else as in TensorFlow 1."""
    return tf.raw_ops.ResizeBilinear(images=images, size=tf.stack([height, width]), half_pixel_centers=centered)


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

    high, wide = spatial_size(images)
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


def crop(images: tf.Tensor, window: Window, target: Target) -> tf.Tensor:
    """Crop images of one size from the offsets on that are the details of the window, and mirror them."""
    top, left = tf.unstack(window.details, axis=1)
    rows = top[:, None] + tf.range(target.height)
    columns = flip_columns(left[:, None] + tf.range(target.width), window.mirrored)
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
    return tf.reduce_sum(floats(images) * tf.constant(LUMA), axis=-1, keepdims=True)


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
    # Reductions over three values would take four times as long.
    red, green, blue = images[..., :1], images[..., 1:2], images[..., 2:]
    value = tf.maximum(tf.maximum(red, green), blue)
    spread = value - tf.minimum(tf.minimum(red, green), blue)
    # Black and darker values have no saturation: spread / spread would make one.
    limited = tf.minimum(value, spread * _each(factors))
    ratio = tf.where(value > 0, tf.math.divide_no_nan(limited, spread), 0.0)
    return value - (value - images) * ratio


class HsvChanges(NamedTuple):
    """Changes of colors in HSV, float32 [N] each; a change of hue commutes with the others."""

    brightness: tf.Tensor  # added to all values
    saturation: tf.Tensor  # multiplies the saturation, at most to 1; no change below 0
    brightness_after: tf.Tensor  # added once the saturation is changed
    hue: tf.Tensor  # shifts the hue by this fraction of the circle


def adjust_hsv(planes: Planes, changes: HsvChanges) -> Planes:
    """Make several changes in one conversion to HSV and back; gray images become brighter only.

    The formulas are those of `tf.image`, also for values that a change before brought below 0 or above 1.
    """
    before, factor, after, shift = (amount[:, None, None] for amount in changes)
    if len(planes) == 1:
        return [planes[0] + before + after]
    red, green, blue = planes
    value = tf.maximum(tf.maximum(red, green), blue)
    spread = value - tf.minimum(tf.minimum(red, green), blue)
    hue = tf.where(  # 0..6, with red at 0, green at 2 and blue at 4
        red == value, green - blue, tf.where(green == value, blue - red + 2 * spread, red - green + 4 * spread)
    )
    hue = tf.math.divide_no_nan(hue, spread) + 6.0 * shift
    hue -= 6.0 * tf.floor(hue / 6.0)  # tf.math.floormod has other bits in batches of another size
    value += before
    limited = tf.where(value > 0, tf.minimum(value, spread * factor), 0.0)
    spread = tf.where(factor < 0, spread, limited)
    value += after
    shares = tf.abs(hue - 3.0) - 1.0, 2.0 - tf.abs(hue - 2.0), 2.0 - tf.abs(hue - 4.0)
    return [value - spread + spread * tf.clip_by_value(share, 0.0, 1.0) for share in shares]


def _mean(plane: tf.Tensor) -> tf.Tensor:
    """The mean of each image, [N, 1, 1], with the same bits in a batch of any size on any device.

    It adds whole numbers: a sum of floats depends on their order, which XLA chooses by the size of the batch.
    """
    whole = tf.cast(tf.cast(plane * UNITS, tf.int32), tf.int64)
    count = tf.cast(tf.shape(plane)[1] * tf.shape(plane)[2], tf.float32)
    return tf.cast(tf.reduce_sum(whole, axis=(1, 2), keepdims=True), tf.float32) / (UNITS * count)


def adjust_contrasts(planes: Planes, factors: tf.Tensor) -> Planes:
    """Multiply the distances from the mean of each plane, as `adjust_contrast` does for images."""
    means = [_mean(plane) for plane in planes]
    scale = factors[:, None, None]
    return [(plane - mean) * scale + mean for plane, mean in zip(planes, means, strict=True)]


def _each(amounts: tf.Tensor) -> tf.Tensor:
    return tf.reshape(amounts, (-1, 1, 1, 1))
