"""The threshold for drift before the permutation test, as a peer: the asymptotic distribution of the distance.

If window and reference are of one distribution, the squared distance of their mean features is distributed as
(1/window + 1/reference) * sum(weight_i * chi2_1). The weights are estimated from the reference alone, and
multiplied by what folds of it gave for other images.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

FOLDS = 5
RIDGE = 0.03  # of the largest variance
NEGLIGIBLE = 1e-6  # of the largest weight
STEPS = 100  # of a bisection


class Before:
    """A reference, and the threshold of a level for windows of so many images."""

    def __init__(self, reference: NDArray[np.floating], window: int, level: float) -> None:
        features = np.asarray(reference, np.float64)
        self._mean, self._units = features.mean(axis=0), units(np.cov(features, rowvar=False))
        scale = inflation(features) * (1 / window + 1 / len(features))
        self._threshold = scale * quantile(self._units.weights, level)

    def drifted(self, window: NDArray[np.floating]) -> bool:
        """Whether a window is beyond the threshold."""
        difference = (window.mean(axis=0, dtype=np.float64) - self._mean) @ self._units.directions
        return float(difference @ difference) > self._threshold


class Units(NamedTuple):
    """Directions in which features differ, scaled to how much."""

    directions: NDArray[np.float64]  # [FEATURES, FEATURES], one in each column
    weights: list[float]  # variances in these units, positive and at most 1


def units(covariance: NDArray[np.float64]) -> Units:
    """The units of distance for a covariance [FEATURES, FEATURES]."""
    variances, directions = np.linalg.eigh(covariance)
    variances = np.maximum(variances, 0)
    scale = variances + RIDGE * variances.max() + np.finfo(float).tiny
    weights = variances / scale
    return Units(directions / np.sqrt(scale), weights[weights > NEGLIGIBLE * weights.max()].tolist())


def inflation(features: NDArray[np.float64]) -> float:
    """How much further images are from the mean, in units of other images, than these units' weights say."""
    fold, ratios = np.arange(len(features)) % FOLDS, []
    for number in range(FOLDS):
        others = features[fold != number]
        found = units(np.cov(others, rowvar=False))
        apart = (features[fold == number] - others.mean(axis=0)) @ found.directions
        expected = sum(found.weights) * (1 + 1 / len(others))
        ratios.append(float((apart**2).sum(axis=1).mean()) / max(expected, np.finfo(float).tiny))
    return float(f"{max(np.mean(ratios), 1.0):.4g}")


def tail(weights: Sequence[float], value: float) -> float:
    """P(sum(weight_i * chi2_1) >= value) for positive weights.

    Source: the saddlepoint approximation of Kuonen 1999, "Saddlepoint approximations for distributions of
    quadratic forms in normal variables"; its relative error stays at a few percent far into the tail.
    """
    found = np.asarray(weights, np.float64)
    found, mean = found / found.sum(), value / found.sum()
    if mean <= 0:
        return 1.0
    low, high = -0.5 * len(found) / mean, 0.5 / found.max()
    for _ in range(STEPS):  # the slope of the cumulant generating function grows from 0 to infinity
        point = (low + high) / 2
        slope = float((found / (1 - 2 * point * found)).sum())
        low, high = (point, high) if slope < mean else (low, point)
    cumulant = -0.5 * float(np.log1p(-2 * point * found).sum())
    curvature = 2 * float(((found / (1 - 2 * point * found)) ** 2).sum())
    w = math.copysign(math.sqrt(max(2 * (point * mean - cumulant), 0)), point)
    v = point * math.sqrt(curvature)
    if abs(w) < 1e-4:  # at the mean, where the formula divides by 0
        skew = 8 * float((found**3).sum()) / (2 * float((found**2).sum())) ** 1.5
        return float(ndtr(-skew / 6))
    return float(ndtr(-(w + math.log(v / w) / w)))


def quantile(weights: Sequence[float], level: float) -> float:
    """The value that sum(weight_i * chi2_1) exceeds with the probability `level`."""
    low, high = 0.0, sum(weights)
    while tail(weights, high) > level:
        high *= 2
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(weights, middle) > level else (low, middle)
    return high
