# Origin: research/slim/preprocessing/{inception,vgg}_preprocessing.py
# of github.com/tensorflow/models (Apache-2.0): the steps and their constants.
"""Preprocessing of ImageNet's networks: Inception (MobileNet, NASNet) and VGG (in TF-Slim also ResNet).

Inception (Szegedy et al. 2014) draws crops as tf.image.sample_distorted_bounding_box does; one try in seven
fails, in panoramas one in two: thirty do for the original's hundred. VGG (Simonyan and Zisserman 2014) takes
sides of 256 to 512 pixels for results of 224, other results in proportion.
"""

from collections.abc import Sequence

import tensorflow as tf

from perennial.data.preprocessing import resampling, transforms
from perennial.data.preprocessing.randomness import Draws
from perennial.data.preprocessing.resampling import bilinear, either, line, resample
from perennial.data.preprocessing.transforms import Length, Preprocessing, Target, Window, convert_channels

# Inception
METHOD, FLIP, ORDER, BRIGHTNESS, SATURATION, HUE, CONTRAST, TOP, LEFT = DECISIONS = range(9)
TRIES = 30
DRAWS = len(DECISIONS) + 2 * TRIES
MOST_BRIGHTNESS = 32.0  # 0..255
ASPECTS = (0.75, 1.33)  # width over height
AREAS = (0.05, 1.0)  # of the image
LEAST_COVERED = 0.1  # of the box, which is the image
MARGIN = 16  # evaluation drops a sixteenth on each side, as tf.image.central_crop with 0.875
METHODS = (bilinear, resampling.nearest, resampling.bicubic, resampling.area)
ORDERS, FAST_ORDERS = ("bshc", "sbch", "chbs", "hscb"), ("bs", "sb", "sb", "sb")  # of changes: first letters

# VGG
VGG_SIDE, VGG_TOP, VGG_LEFT, VGG_FLIP = VGG_DRAWS = range(4)
PUBLISHED, SMALLEST, LARGEST = 224, 256, 512  # of the result; the short side of what it is cut from
MEANS = (123.68, 116.78, 103.94)  # of ImageNet's red, green and blue


def inception_windows(sizes: tf.Tensor, keys: tf.Tensor, target: Target) -> Window:  # noqa: ARG001
    """Draw a part of each image; the detail is the number of the method that resizes it."""
    draws, whole = Draws(keys, DRAWS), (sizes[:, 0], sizes[:, 1])
    sides = random_sides(draws, whole)
    begins = transforms.random_offsets(draws, (TOP, LEFT), whole, sides)
    method = draws.integers(METHOD, len(METHODS))[:, None]
    return Window(tf.stack([*begins, *sides], axis=1), draws.coin(FLIP), method)


def inception_placed(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Crop a random part, resize it and flip it randomly."""
    window = inception_windows(transforms.sizes(images), keys, target)
    top, left, height, width = tf.unstack(window.rectangle, axis=1)
    parts, counts = ((top, height), (left, width)), (target.height, target.width)
    lines = [
        line(whole, part, count, count, centered=target.centered)
        for whole, part, count in zip(transforms.spatial_size(images), parts, counts, strict=True)
    ]
    method = bilinear if target.fast else either(METHODS, window.details[:, 0])
    return resample(images, lines, method, window.mirrored)


def inception_cut(part: tf.Tensor, window: Window, target: Target) -> tf.Tensor:
    """Resize a part of an image, with `fast: false` by the method that was drawn for it."""
    images, ops, shape = part[None], tf.raw_ops, (target.height, target.width)
    whole = {"images": images, "size": shape}
    centers = {"half_pixel_centers": target.centered}

    resized = [  # in the order of METHODS
        lambda: transforms.rounded(ops.ResizeBilinear(**whole, **centers)),
        lambda: ops.ResizeNearestNeighbor(**whole, **centers),
        lambda: transforms.rounded(tf.clip_by_value(ops.ResizeBicubic(**whole, **centers), 0.0, 255.0)),
        lambda: transforms.rounded(ops.ResizeArea(**whole)),
    ]
    if target.fast:
        return resized[0]()[0]
    return tf.switch_case(window.details[0], resized)[0]


def inception_finished(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Distort the colors."""
    draws = Draws(keys, DRAWS)
    if target.fast:
        return (convert_channels(distort_few_colors(images, draws), target.channels) - 127.5) / 127.5
    colored = distort_colors(images / 255.0, draws)
    return (convert_channels(colored, target.channels) - 0.5) * 2.0


def inception_evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Crop the center and resize it."""
    high, wide = transforms.spatial_size(images)
    top, left = high // MARGIN, wide // MARGIN
    middle = images[:, top : high - top, left : wide - left]
    resized = transforms.resize_bilinear(middle, target.height, target.width, centered=target.centered)
    return convert_channels(resized, target.channels) / 127.5 - 1.0


def random_sides(draws: Draws, whole: tuple[Length, Length]) -> tuple[tf.Tensor, tf.Tensor]:
    """Draw height and width int32 [N] of a part of the images (of `whole`); all of it if no try is valid."""
    high, wide = (tf.reshape(tf.cast(length, tf.float32), (-1, 1)) for length in whole)
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
        tf.where(found, tf.gather(tried, chosen, batch_dims=1)[:, 0], length[:, 0])
        for tried, length in ((heights, high), (widths, wide))
    )
    return tf.cast(height, tf.int32), tf.cast(width, tf.int32)


def distort_few_colors(images: tf.Tensor, draws: Draws) -> tf.Tensor:
    """Change brightness and saturation of images 0..255, clipped to that, in one of two random orders.

    Three of the four orders are the same. No sum follows a product: XLA joins the two, with one rounding
    instead of two, in batches of some sizes only. In 0..1 the last bits differed, and a spread of two roundings
    of one value made NaN.
    """
    before, factors, after, _ = _hsv_changes(draws, FAST_ORDERS, MOST_BRIGHTNESS)
    images = transforms.adjust_saturation(transforms.adjust_brightness(images, before), factors)
    return tf.clip_by_value(transforms.adjust_brightness(images, after), 0.0, 255.0)


def distort_colors(images: tf.Tensor, draws: Draws) -> tf.Tensor:
    """Distort the colors of images 0..1, clipped to that; the changes have one of four random orders."""
    # Before and after the change of contrast, which needs means.
    parts = zip(*(order.split("c") for order in ORDERS), strict=True)
    first, second = (_hsv_changes(draws, part, MOST_BRIGHTNESS / 255) for part in parts)
    planes = transforms.adjust_hsv(tf.unstack(images, axis=-1), first)
    planes = transforms.adjust_contrasts(planes, draws.uniform(CONTRAST, 0.5, 1.5))
    planes = transforms.adjust_hsv(planes, second)
    return tf.stack([tf.clip_by_value(plane, 0.0, 1.0) for plane in planes], axis=-1)


def _hsv_changes(draws: Draws, orders: Sequence[str], most: float) -> transforms.HsvChanges:
    """What the order of each image changes, brightness by at most `most`, before saturation or after it."""
    number = draws.integers(ORDER, len(orders))

    def where(used: list[bool], amounts: tf.Tensor, otherwise: float) -> tf.Tensor:
        return tf.where(tf.gather(tf.constant(used), number), amounts, otherwise)

    shifts = draws.uniform(BRIGHTNESS, -most, most)
    around = [order.partition("s") for order in orders]
    return transforms.HsvChanges(
        brightness=where(["b" in before for before, _, _ in around], shifts, 0.0),
        saturation=where(["s" in order for order in orders], draws.uniform(SATURATION, 0.5, 1.5), -1.0),
        brightness_after=where(["b" in after for _, _, after in around], shifts, 0.0),
        hue=where(["h" in order for order in orders], draws.uniform(HUE, -0.2, 0.2), 0.0),
    )


def vgg_windows(sizes: tf.Tensor, keys: tf.Tensor, target: Target) -> Window:
    """Draw a short side and a crop; the rectangle has the pixels that contribute to the crop."""
    draws, whole = Draws(keys, len(VGG_DRAWS)), (sizes[:, 0], sizes[:, 1])
    full, offsets = _vgg_crop(draws, whole, target)
    begins, lengths, firsts, scales = [], [], [], []
    for length, resized, offset, count in zip(whole, full, offsets, (target.height, target.width), strict=True):
        ends = [
            line(1, (0, length), resized, 1, offset + place, centered=target.centered)
            for place in (0, count - 1)
        ]
        first, last = (end.centers[:, 0] for end in ends)
        begin, end = (
            tf.clip_by_value(tf.cast(tf.floor(place), tf.int32), 0, length - 1) for place in (first, last + 1.0)
        )
        begins.append(begin)
        lengths.append(end - begin + 1)
        firsts.append(first - tf.cast(begin, tf.float32))
        scales.append(ends[0].scale[:, 0])
    rectangle = tf.stack([*begins, *lengths], axis=1)
    return Window(rectangle, draws.coin(VGG_FLIP), tf.stack([*firsts, *scales], axis=1))


def vgg_cut(part: tf.Tensor, window: Window, target: Target) -> tf.Tensor:
    """Interpolate the pixels of a crop in a rectangle."""
    for axis in (0, 1):  # positions outside take the nearest pixel
        last = tf.shape(part)[axis] - 1
        edges = (tf.gather(part, [number], axis=axis) for number in (0, last))
        first, end = edges
        part = tf.concat([first, part, end], axis=axis)
    largest = tf.cast(tf.shape(part)[:2] - 1, tf.float32)
    counts = tf.constant([target.height - 1, target.width - 1], tf.float32)
    begins = window.details[:2] + 1.0
    ends = begins + counts * window.details[2:]
    cropped = tf.raw_ops.CropAndResize(
        image=part[None],
        boxes=tf.concat([begins / largest, ends / largest], axis=0)[None],
        box_ind=[0],
        crop_size=(target.height, target.width),
    )
    return transforms.rounded(cropped[0])


def vgg_placed(images: tf.Tensor, keys: tf.Tensor, target: Target) -> tf.Tensor:
    """Resize to a random short side, and randomly crop and flip."""
    draws = Draws(keys, len(VGG_DRAWS))
    full, offsets = _vgg_crop(draws, transforms.spatial_size(images), target)
    lines = [
        line(whole, (0, whole), resized, count, offset, centered=target.centered)
        for whole, resized, count, offset in zip(
            transforms.spatial_size(images), full, (target.height, target.width), offsets, strict=True
        )
    ]
    return resample(images, lines, bilinear, draws.coin(VGG_FLIP))


def _vgg_crop(
    draws: Draws, whole: tuple[Length, Length], target: Target
) -> tuple[tuple[Length, Length], transforms.Offsets]:
    """Draw the full size of a resized image, and where a crop of it begins."""
    smallest, largest = sides(target)
    full = _shape(whole, smallest + draws.integers(VGG_SIDE, largest - smallest + 1))
    return full, transforms.random_offsets(draws, (VGG_TOP, VGG_LEFT), full, (target.height, target.width))


def vgg_evaluation(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Resize to the smallest short side, crop the center, and subtract the means."""
    high, wide = _shape(transforms.spatial_size(images), sides(target)[0])
    resized = transforms.resize_bilinear(images, high, wide, centered=target.centered)
    cropped = tf.image.resize_with_crop_or_pad(resized, target.height, target.width)
    return _minus_means(cropped, target)


def sides(target: Target) -> tuple[int, int]:
    """The smallest and largest short side from which a result is cropped."""
    proportion = min(target.height, target.width) / PUBLISHED
    return round(SMALLEST * proportion), round(LARGEST * proportion)


def _shape(whole: tuple[Length, Length], side: Length) -> tuple[Length, Length]:
    """The exact integer height and width of images once their short side has `side` pixels."""
    height, width = whole
    short = transforms.minimum(height, width)
    return (2 * height * side + short) // (2 * short), (2 * width * side + short) // (2 * short)


def _minus_means(images: tf.Tensor, target: Target) -> tf.Tensor:
    """Subtract the mean of each channel; for gray images, the gray value of the means."""
    images = convert_channels(images, target.channels)
    gray = sum(share * mean for share, mean in zip(transforms.LUMA, MEANS, strict=True))
    return images - tf.constant(MEANS if images.shape[-1] == 3 else gray, tf.float32)


INCEPTION = Preprocessing(
    evaluation=inception_evaluation,
    distortion=transforms.Distortion(
        placed=inception_placed, windows=inception_windows, cut=inception_cut, finished=inception_finished
    ),
    resizes="always",
)
VGG = Preprocessing(
    evaluation=vgg_evaluation,
    distortion=transforms.Distortion(
        placed=vgg_placed, windows=vgg_windows, cut=vgg_cut,
        finished=lambda images, _, target: _minus_means(images, target),
    ),
    resizes="always",
)  # fmt: skip
