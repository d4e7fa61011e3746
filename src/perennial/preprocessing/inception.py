"""The preprocessing of the Inception nets (Szegedy et al. 2014), also used for MobileNet and NASNet: -1 to 1.

The crop is drawn as by tf.image.sample_distorted_bounding_box with the whole image as its box, which is what
TF-Slim does: each try draws an aspect ratio, then a height among those with the right area, and counts when it
covers enough of the box. One in seven fails, in panoramas one in two: thirty do for the original's hundred.
"""

from functools import partial, reduce

import tensorflow as tf

from perennial.preprocessing.randomness import Draws
from perennial.preprocessing.resampling import area, bicubic, bilinear, either, line, nearest, resample
from perennial.preprocessing.transforms import (
    Length,
    Preprocessing,
    Target,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    convert_channels,
    random_offsets,
    size,
)

METHOD, FLIP, ORDER, BRIGHTNESS, SATURATION, HUE, CONTRAST, TOP, LEFT = DECISIONS = range(9)
TRIES = 30
DRAWS = len(DECISIONS) + 2 * TRIES
ASPECTS = (0.75, 1.33)  # width over height
AREAS = (0.05, 1.0)  # of the image
LEAST_COVERED = 0.1  # of the box, which is the image
KEPT = 0.875  # of each side, in evaluation


def training(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """A random part resized, flipped, in other colors."""
    draws, images = Draws(keys, DRAWS), images / 255.0
    sides = random_sides(draws, size(images))
    begins = random_offsets(draws, (TOP, LEFT), size(images), sides)
    lines = [
        line(whole, part, count, count)
        for whole, part, count in zip(
            size(images), zip(begins, sides, strict=True), (target.height, target.width), strict=True
        )
    ]
    methods = (bilinear, nearest, bicubic, area)
    method = bilinear if target.fast else either(methods, draws.integers(METHOD, len(methods)))
    images = distort_colors(resample(images, lines, method, draws.coin(FLIP)), draws, fast=target.fast)
    return (convert_channels(images, target.channels) - 0.5) * 2.0


def evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """The middle, resized."""
    middle = tf.image.central_crop(convert_channels(images / 255.0, target.channels), KEPT)
    return (tf.image.resize(middle, (target.height, target.width)) - 0.5) * 2.0


def random_sides(draws: Draws, whole: tuple[Length, Length]) -> tuple[tf.Tensor, tf.Tensor]:
    """Height and width int32 [N] of a part of images of that height and width; all of it when no try counts."""
    high, wide = (tf.cast(length, tf.float32) for length in whole)
    first, second = len(DECISIONS), len(DECISIONS) + TRIES
    aspects = draws.uniform(slice(first, second), *ASPECTS)  # [N, TRIES], as all that follows
    lowest, highest = (tf.round(tf.sqrt(share * high * wide / aspects)) for share in AREAS)
    # The highest whose width, rounded, fits; a division that came out too large is put right after it.
    fits = tf.floor((wide + 0.5) / aspects)
    fits = tf.where(tf.round(fits * aspects) > wide, fits - 1.0, fits)
    highest = tf.minimum(tf.minimum(highest, fits), high)
    lowest = tf.minimum(lowest, highest)
    heights = lowest + tf.cast(draws.integers(slice(second, DRAWS), highest - lowest + 1.0), tf.float32)
    widths = tf.round(heights * aspects)
    counts = heights * widths >= tf.maximum(LEAST_COVERED * high * wide, 1.0)
    chosen = tf.argmax(tf.cast(counts, tf.int32), axis=1)[:, None]  # the first that counts
    found = tf.reduce_any(counts, axis=1)
    height, width = (
        tf.where(found, tf.gather(tried, chosen, batch_dims=1)[:, 0], length)
        for tried, length in ((heights, high), (widths, wide))
    )
    return tf.cast(height, tf.int32), tf.cast(width, tf.int32)


def distort_colors(images: tf.Tensor, draws: Draws, *, fast: bool) -> tf.Tensor:
    """Images 0..1 in other colors, cut off at 0 and 1; the order of the changes is drawn too, of four.

    Where it is fast, there are two changes, and three of the four orders are the same.
    """
    changes = {
        "b": partial(adjust_brightness, shifts=draws.uniform(BRIGHTNESS, -32 / 255, 32 / 255)),
        "s": partial(adjust_saturation, factors=draws.uniform(SATURATION, 0.5, 1.5)),
        "h": partial(adjust_hue, shifts=draws.uniform(HUE, -0.2, 0.2)),
        "c": partial(adjust_contrast, factors=draws.uniform(CONTRAST, 0.5, 1.5)),
    }
    orders = ("bs", "sb", "sb", "sb") if fast else ("bshc", "sbch", "chbs", "hscb")
    number = draws.integers(ORDER, len(orders))[:, None, None, None]
    results = {
        order: reduce(lambda x, letter: changes[letter](x), order, images) for order in dict.fromkeys(orders)
    }
    for place, order in enumerate(orders):
        images = tf.where(number == place, results[order], images)
    return tf.clip_by_value(images, 0.0, 1.0)


INCEPTION = Preprocessing(training=training, evaluation=evaluation)
