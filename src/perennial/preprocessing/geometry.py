"""Where the pixels of a result come from: crops, flips and borders of whole batches, by index arithmetic."""

from typing import TypeAlias

import tensorflow as tf

from perennial.preprocessing.randomness import Draws

Length: TypeAlias = int | tf.Tensor  # in pixels; a tensor where it is not known before it runs
Offsets = tuple[tf.Tensor, tf.Tensor]  # rows from the top, columns from the left: int32 [N] each


def size(images: tf.Tensor) -> tuple[Length, Length]:
    """Height and width of images [N, height, width, channels]."""
    shape = tf.shape(images)
    height, width = (shape[axis] if images.shape[axis] is None else images.shape[axis] for axis in (1, 2))
    return height, width


def longer(one: Length, other: Length) -> Length:
    """The larger of two lengths; a number if both are."""
    return tf.maximum(one, other) if tf.is_tensor(one) or tf.is_tensor(other) else max(one, other)


def shorter(one: Length, other: Length) -> Length:
    """The smaller of two lengths; a number if both are."""
    return -longer(-one, -other)


def centred(images: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """The middle of images, with zeros around those that are smaller."""
    return tf.image.resize_with_crop_or_pad(images, height, width)


def bordered(images: tf.Tensor, border: int, height: int, width: int) -> tf.Tensor:
    """Images with `border` rows and columns of zeros on each side, and more up to height and width."""

    def edges(length: Length, least: int) -> tuple[Length, Length]:
        missing = longer(2 * border, least - length)
        return missing // 2, missing - missing // 2

    high, wide = size(images)
    return tf.pad(images, [(0, 0), edges(high, height), edges(wide, width), (0, 0)])


def random_offsets(
    draws: Draws, numbers: tuple[int, int], outer: tuple[Length, Length], inner: tuple[Length, Length]
) -> Offsets:
    """Where a smaller rectangle of (height, width) lies in a larger one; each place is as likely."""
    top, left = (
        draws.integers(number, large - small + 1)
        for number, large, small in zip(numbers, outer, inner, strict=True)
    )
    return top, left


def cropped(images: tf.Tensor, offsets: Offsets, height: int, width: int, mirrored: tf.Tensor) -> tf.Tensor:
    """Images [N, height, width, channels] from the offsets on, mirrored where bool [N] is true."""
    top, left = offsets
    rows = top[:, None] + tf.range(height)
    columns = mirrored_columns(left[:, None] + tf.range(width), mirrored)
    return tf.gather(tf.gather(images, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)


def mirrored_columns(columns: tf.Tensor, mirrored: tf.Tensor) -> tf.Tensor:
    """What is said of each column [N, width, ...], in the opposite order where bool [N] is true."""
    shape = (-1, *(1 for _ in columns.shape[1:]))
    return tf.where(tf.reshape(mirrored, shape), columns[:, ::-1], columns)
