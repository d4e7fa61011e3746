"""Random erasing, MixUp and CutMix of model inputs; each depends only on an image's random key.

- Random erasing (Zhong et al. 2017): a rectangle of 2 to 33 % of the area, with the mean of the image in it.
- MixUp (Zhang et al. 2017): the weighted mean of two images, with a weight from Beta(alpha, alpha).
- CutMix (Yun et al. 2019): a rectangle of the other image; if it lies inside, its area share is 1 - weight.

The other image is at the mirrored position in the global batch, counted from the end, on whichever device.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
import tensorflow as tf
from numpy.typing import NDArray

from perennial.data.preprocessing.randomness import Draws
from perennial.data.preprocessing.transforms import spatial_size

ERASING_STREAM, MIXING_STREAM = 2, 3  # of random numbers, separate from those of the preprocessings
ERASED, AREA, ASPECT, ERASED_ROW, ERASED_COLUMN = ERASING_DRAWS = range(5)
AREAS, ASPECTS = (0.02, 0.33), (0.3, 1 / 0.3)  # of random erasing: share of the image, height over width
WEIGHT, CUT_WEIGHT, CUTS, ROW, COLUMN = MIXING_DRAWS = range(5)
QUANTILES = 4096  # equally likely weights that stand for a Beta distribution


class Mixed(NamedTuple):
    """Mixed images, and the share of each image's own content."""

    images: tf.Tensor
    own: tf.Tensor  # float32 [N], the weight of its own label


def erase(images: tf.Tensor, keys: tf.Tensor, *, probability: float) -> tf.Tensor:
    """Replace a random rectangle by the mean color, in each image with the given probability."""
    draws = Draws(keys, len(ERASING_DRAWS), stream=ERASING_STREAM)
    height, width = (tf.cast(length, tf.float32) for length in spatial_size(images))
    area = draws.uniform(AREA, *AREAS) * height * width
    aspect = tf.exp(draws.uniform(ASPECT, *np.log(ASPECTS).tolist()))
    high, wide = tf.minimum(tf.sqrt(area * aspect), height), tf.minimum(tf.sqrt(area / aspect), width)
    top = draws.uniform(ERASED_ROW) * (height - high)
    left = draws.uniform(ERASED_COLUMN) * (width - wide)
    chosen = draws.uniform(ERASED) < probability
    found = rectangle(images, (top, top + high), (left, left + wide))
    mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return tf.where(found & tf.reshape(chosen, (-1, 1, 1, 1)), mean, images)


def mix(
    images: tf.Tensor, others: tf.Tensor, keys: tf.Tensor, *, mixup: float | None, cutmix: float | None
) -> Mixed:
    """Mix images with others of the same shape; with both alphas, each image randomly uses one of them."""
    draws = Draws(keys, len(MIXING_DRAWS), stream=MIXING_STREAM)
    blended, cut = None, None
    if mixup is not None:
        own = tf.gather(tf.constant(weights(mixup)), draws.integers(WEIGHT, QUANTILES))
        shares = tf.cast(tf.reshape(own, (-1, 1, 1, 1)), images.dtype)
        blended = Mixed(images * shares + others * (1 - shares), own)
    if cutmix is not None:
        own = tf.gather(tf.constant(weights(cutmix)), draws.integers(CUT_WEIGHT, QUANTILES))
        found = _patch(images, own, draws)
        cut = Mixed(
            tf.where(found, others, images), 1.0 - tf.reduce_mean(tf.cast(found, tf.float32), (1, 2, 3))
        )
    if blended is None or cut is None:
        return blended or cut or Mixed(images, tf.ones(tf.shape(keys)[:1]))
    cuts = draws.coin(CUTS)
    chosen = tf.reshape(cuts, (-1, 1, 1, 1))
    return Mixed(tf.where(chosen, cut.images, blended.images), tf.where(cuts, cut.own, blended.own))


def _patch(images: tf.Tensor, own: tf.Tensor, draws: Draws) -> tf.Tensor:
    """A rectangle with the share 1 - own of the area, the image's aspect ratio, and a random center."""
    sides = tf.sqrt(1.0 - own)
    spans = []
    lengths = (tf.cast(length, tf.float32) for length in spatial_size(images))
    for draw, length in zip((ROW, COLUMN), lengths, strict=True):
        center = tf.floor(draws.uniform(draw) * length)
        spans.append((center - tf.floor(sides * length) / 2, center + tf.floor(sides * length) / 2))
    return rectangle(images, spans[0], spans[1])


def rectangle(
    images: tf.Tensor, rows: tuple[tf.Tensor, tf.Tensor], columns: tuple[tf.Tensor, tf.Tensor]
) -> tf.Tensor:
    """Pixels from the first to before the second bound [N], rounded down, as bool [N, height, width, 1]."""
    masks = []
    for length, bounds in zip(spatial_size(images), (rows, columns), strict=True):
        begin, end = (tf.cast(tf.floor(bound), tf.int32)[:, None] for bound in bounds)
        indices = tf.range(length, dtype=tf.int32)[None]
        masks.append((indices >= begin) & (indices < end))
    return (masks[0][:, :, None] & masks[1][:, None, :])[..., None]


def partners(positions: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
    """Find the partner of each of the `own` positions, as int32 indices into all positions of a batch.

    Positions are within the global batch, in any order; those below 0 belong to no example. A short batch that
    goes whole to each of several devices has each position several times.
    """
    length = tf.reduce_max(positions) + 1
    filled = tf.reduce_sum(tf.cast(positions < 0, tf.int32))
    times = (tf.shape(positions)[0] - filled) // length
    order = tf.argsort(positions, stable=True)
    return tf.gather(order, filled + (length - 1 - own) * times)


@cache
def weights(alpha: float) -> NDArray[np.float32]:
    """Equally likely values that approximate Beta(alpha, alpha): the quantiles at the middle of equal parts."""
    middles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    values: NDArray[np.float64] = scipy.special.betaincinv(alpha, alpha, middles)
    return values.astype(np.float32)
