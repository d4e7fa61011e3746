"""Resizing with a separate part and scale for each image of a batch, as sums of a few gathered pixels.

tf.image.resize takes one scale for all images. Here a method lists, for each pixel of a result, the pixels of
the image that contribute to it, with weights; rows first, then columns. It avoids matrix products, which a GPU
would round to ten bits. The methods are those of tf.image.resize, with half-pixel centers, or those of
TensorFlow 1, in which pixel 0 of a result lies on pixel 0 of the image.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import tensorflow as tf

from perennial.data.preprocessing.transforms import Length, flip_columns, floats, maximum, spatial_size


class Line(NamedTuple):
    """One axis of a resizing: which part of an image becomes which pixels of the result."""

    begin: tf.Tensor  # int32 [N, 1], the first pixel of the part
    length: tf.Tensor  # int32 [N, 1], its pixels
    scale: tf.Tensor  # float32 [N, 1], pixels of the part in one of the result
    places: tf.Tensor  # float32 [N, count], centers of the result's pixels
    most: Length  # pixels of the part that one of the result touches, at most
    centered: bool = True  # whether centers of pixels are mapped to each other; else their top left corners

    @property
    def centers(self) -> tf.Tensor:
        """Where the result's pixels lie among the pixels of the part, float32 [N, count]."""
        return self.places * self.scale - 0.5 if self.centered else (self.places - 0.5) * self.scale


class Taps(NamedTuple):
    """The source pixels, with weights, that contribute to each pixel of a result."""

    first: tf.Tensor  # float32 [N, count], whole; may lie outside the part
    weights: tf.Tensor  # float32 [N, count, taps]: of the first and those that follow it


Method = Callable[[Line], Taps]


def line(
    whole: Length,
    part: tuple[Length, Length],
    resized: Length,
    count: int,
    offset: Length = 0,
    *,
    centered: bool = True,
) -> Line:
    """`count` pixels from `offset` on of what a part (begin, length) of an axis is with `resized` pixels."""
    begin, length, resized, offset = (
        tf.reshape(tf.cast(value, tf.int32), (-1, 1)) for value in (*part, resized, offset)
    )
    scale = tf.cast(length, tf.float32) / tf.cast(resized, tf.float32)
    places = tf.cast(offset + tf.range(count), tf.float32) + 0.5
    return Line(begin, length, scale, places, -(-whole // count) + 1, centered)


def resample(images: tf.Tensor, lines: Sequence[Line], method: Method, mirrored: tf.Tensor) -> tf.Tensor:
    """Float32 [N, rows, columns, channels] of the lines (rows, columns), mirrored where bool [N] is true."""
    rows, columns = (_indexed(part, method(part)) for part in lines)
    images = _mixed(images, *rows, axis=1)
    return _mixed(images, *(flip_columns(each, mirrored) for each in columns), axis=2)


def bilinear(part: Line) -> Taps:
    """Bilinear interpolation: two pixels per axis, the nearer one with the larger weight."""
    center = part.centers
    first = tf.floor(center)
    return Taps(first, tf.stack([1.0 - (center - first), center - first], axis=-1))


def nearest(part: Line) -> Taps:
    """Nearest neighbor: one pixel."""
    first = tf.floor(part.places * part.scale if part.centered else part.centers)
    return Taps(first, tf.ones_like(first)[..., None])


def bicubic(part: Line) -> Taps:
    """Bicubic by Keys (1981), a = -0.5, without pixels outside; TensorFlow 1 repeats edges, a = -0.75."""
    center, a = part.centers, -0.5 if part.centered else -0.75
    taps = tf.floor(center)[..., None] + tf.range(-1.0, 3.0)
    x = tf.abs(taps - center[..., None])
    near, far = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0, ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    weights = tf.where(x < 1.0, near, far)
    return _inside(part, taps, weights) if part.centered else Taps(taps[..., 0], weights)


def area(part: Line) -> Taps:
    """Area averaging: each source pixel is weighted by its overlap with the result's pixel."""
    begin, end = (part.places - 0.5) * part.scale, (part.places + 0.5) * part.scale
    taps = tf.floor(begin)[..., None] + tf.range(tf.cast(part.most, tf.float32))
    covered = tf.minimum(taps + 1.0, end[..., None]) - tf.maximum(taps, begin[..., None])
    return _inside(part, taps, tf.maximum(covered, 0.0))


def triangle(part: Line) -> Taps:
    """Bilinear over as many pixels as one of the result covers, if more than one: the antialias of tf.image."""
    reach = tf.maximum(part.scale, 1.0)
    center = part.places * part.scale - 0.5
    taps = tf.math.ceil(center - reach)[..., None] + tf.range(tf.cast(2 * part.most, tf.float32))
    return _inside(part, taps, tf.maximum(1.0 - tf.abs(taps - center[..., None]) / reach[..., None], 0.0))


def either(methods: tuple[Method, ...], choice: tf.Tensor) -> Method:
    """Select the method for each image by its index, int32 [N]."""

    def method(part: Line) -> Taps:
        found = [each(part) for each in methods]
        most = reduce(maximum, (_count(taps) for taps in found))
        first, weights = found[0].first, 0.0
        for number, taps in enumerate(found):
            chosen = (choice == number)[:, None]
            first = tf.where(chosen, taps.first, first)
            padded = tf.pad(taps.weights, [(0, 0), (0, 0), (0, most - _count(taps))])
            weights += tf.where(chosen[..., None], padded, 0.0)
        return Taps(first, weights)

    return method


def resize(images: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Resize images to float32, bilinear with antialiasing; images of the right size keep their values."""
    high, wide = spatial_size(images)
    known = not tf.is_tensor(high) and not tf.is_tensor(wide)
    if known and (high, wide) == (height, width):
        return floats(images)
    if known and (high > height or wide > width):
        # tf.image's antialiasing runs only on CPUs, and XLA cannot compile it.
        lines = line(high, (0, high), height, height), line(wide, (0, wide), width, width)
        return resample(floats(images), lines, triangle, tf.zeros(tf.shape(images)[:1], tf.bool))
    return tf.image.resize(images, (height, width), antialias=not known)


def _inside(part: Line, taps: tf.Tensor, weights: tf.Tensor) -> Taps:
    """Set the weights of taps outside the part to 0, and normalize the others to a sum of 1."""
    inside = (taps >= 0) & (taps < tf.cast(part.length, tf.float32)[..., None])
    weights = tf.where(inside, weights, 0.0)
    return Taps(taps[..., 0], weights / tf.reduce_sum(weights, axis=-1, keepdims=True))


def _indexed(part: Line, taps: Taps) -> tuple[tf.Tensor, tf.Tensor]:
    """Which pixels of the image, int32 [N, count, taps], and their weights."""
    numbers = tf.cast(taps.first, tf.int32)[..., None] + tf.range(_count(taps))
    return tf.clip_by_value(numbers, 0, part.length[..., None] - 1) + part.begin[..., None], taps.weights


def _count(taps: Taps) -> Length:
    return taps.weights.shape[-1] or tf.shape(taps.weights)[-1]


def _mixed(images: tf.Tensor, indices: tf.Tensor, weights: tf.Tensor, *, axis: int) -> tf.Tensor:
    """Rows or columns of images, weighted and added up; indices [1, count, taps] are meant for all images."""
    if indices.shape[0] == 1:
        indices = tf.repeat(indices, tf.shape(images)[0], axis=0)
    shares = weights[:, :, None, None] if axis == 1 else weights[:, None, :, None]
    if indices.shape[-1] is None:
        parts = tf.gather(images, indices, axis=axis, batch_dims=1)
        order = (0, 1, 4, 2, 3) if axis == 1 else (0, 1, 2, 4, 3)
        return tf.reduce_sum(parts * tf.transpose(shares, order), axis=axis + 1)
    # Tap by tap: all taps at once would take several times the memory.
    pairs = zip(tf.unstack(indices, axis=-1), tf.unstack(shares, axis=-1), strict=True)
    return sum(tf.gather(images, numbers, axis=axis, batch_dims=1) * share for numbers, share in pairs)
