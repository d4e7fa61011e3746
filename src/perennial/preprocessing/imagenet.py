"""Preprocessing of ImageNet's networks: Inception (MobileNet, NASNet) and VGG (in TF-Slim also ResNet).

Inception (Szegedy et al. 2014): -1 to 1. The crop is drawn as by tf.image.sample_distorted_bounding_box with
the whole image as its box, as in TF-Slim: each try draws an aspect ratio, then a height among those with the
right area, and counts when it covers enough of the box. One in seven fails, in panoramas one in two: thirty do
for the original's hundred.

VGG (Simonyan and Zisserman 2014): RGB minus its means. The sides of 256 to 512 pixels were chosen for results
of 224; other results take them in proportion.
"""

from functools import partial, reduce

import tensorflow as tf

from perennial.preprocessing import transforms
from perennial.preprocessing.randomness import Draws
from perennial.preprocessing.resampling import area, bicubic, bilinear, either, line, nearest, resample
from perennial.preprocessing.transforms import Length, Preprocessing, Target, convert_channels, size

# Inception
METHOD, FLIP, ORDER, BRIGHTNESS, SATURATION, HUE, CONTRAST, TOP, LEFT = DECISIONS = range(9)
TRIES = 30
DRAWS = len(DECISIONS) + 2 * TRIES
ASPECTS = (0.75, 1.33)  # width over height
AREAS = (0.05, 1.0)  # of the image
LEAST_COVERED = 0.1  # of the box, which is the image
KEPT = 0.875  # of each side, in evaluation

# VGG
VGG_SIDE, VGG_TOP, VGG_LEFT, VGG_FLIP = VGG_DRAWS = range(4)
PUBLISHED, SMALLEST, LARGEST = 224, 256, 512  # of the result; the short side of what it is cut from
MEANS = (123.68, 116.78, 103.94)  # of ImageNet's red, green and blue


def inception_training(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Crop a random part, resize it, flip it randomly and distort its colors."""
    draws, images = Draws(keys, DRAWS), images / 255.0
    sides = random_sides(draws, size(images))
    begins = transforms.random_offsets(draws, (TOP, LEFT), size(images), sides)
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


def inception_evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Crop the center and resize it."""
    middle = tf.image.central_crop(convert_channels(images / 255.0, target.channels), KEPT)
    return (tf.image.resize(middle, (target.height, target.width)) - 0.5) * 2.0


def random_sides(draws: Draws, whole: tuple[Length, Length]) -> tuple[tf.Tensor, tf.Tensor]:
    """Draw height and width int32 [N] of a part of the images; the whole image if no try is valid."""
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
    """Distort the colors of images 0..1, clipped to 0..1; the order of the changes is one of four random ones.

    With `fast` there are two changes, and three of the four orders are the same.
    """
    changes = {
        "b": partial(transforms.adjust_brightness, shifts=draws.uniform(BRIGHTNESS, -32 / 255, 32 / 255)),
        "s": partial(transforms.adjust_saturation, factors=draws.uniform(SATURATION, 0.5, 1.5)),
        "h": partial(transforms.adjust_hue, shifts=draws.uniform(HUE, -0.2, 0.2)),
        "c": partial(transforms.adjust_contrast, factors=draws.uniform(CONTRAST, 0.5, 1.5)),
    }
    orders = ("bs", "sb", "sb", "sb") if fast else ("bshc", "sbch", "chbs", "hscb")
    number = draws.integers(ORDER, len(orders))[:, None, None, None]
    results = {
        order: reduce(lambda x, letter: changes[letter](x), order, images) for order in dict.fromkeys(orders)
    }
    for place, order in enumerate(orders):
        images = tf.where(number == place, results[order], images)
    return tf.clip_by_value(images, 0.0, 1.0)


def vgg_training(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Resize to a random short side, randomly crop and flip, and subtract the means."""
    draws = Draws(keys, len(VGG_DRAWS))
    images = convert_channels(images, target.channels)
    smallest, largest = sides(target)
    full = _shape(images, smallest + draws.integers(VGG_SIDE, largest - smallest + 1))
    offsets = transforms.random_offsets(draws, (VGG_TOP, VGG_LEFT), full, (target.height, target.width))
    lines = [
        line(whole, (0, whole), resized, count, offset)
        for whole, resized, count, offset in zip(
            size(images), full, (target.height, target.width), offsets, strict=True
        )
    ]
    return _minus_means(resample(images, lines, bilinear, draws.coin(VGG_FLIP)))


def vgg_evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Resize to the smallest short side, crop the center, and subtract the means."""
    images = convert_channels(images, target.channels)
    resized = tf.image.resize(images, _shape(images, sides(target)[0]))
    return _minus_means(tf.image.resize_with_crop_or_pad(resized, target.height, target.width))


def sides(target: Target) -> tuple[int, int]:
    """The smallest and largest short side from which a result is cropped."""
    proportion = min(target.height, target.width) / PUBLISHED
    return round(SMALLEST * proportion), round(LARGEST * proportion)


def _shape(images: tf.Tensor, side: Length) -> tuple[Length, Length]:
    """The exact integer height and width of images whose short side has `side` pixels."""
    height, width = size(images)
    short = transforms.minimum(height, width)
    return (2 * height * side + short) // (2 * short), (2 * width * side + short) // (2 * short)


def _minus_means(images: tf.Tensor) -> tf.Tensor:
    """Subtract the mean of each channel; for gray images, the gray value of the means."""
    gray = sum(share * mean for share, mean in zip(transforms.LUMA, MEANS, strict=True))
    return images - tf.constant(MEANS if images.shape[-1] == 3 else gray, tf.float32)


INCEPTION = Preprocessing(training=inception_training, evaluation=inception_evaluation)
VGG = Preprocessing(training=vgg_training, evaluation=vgg_evaluation)
