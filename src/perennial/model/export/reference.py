"""The reference of an export: its random features on validation images, and how far others may be from them.

The squared distance between the mean features of a window and of the reference estimates the maximum mean
discrepancy (Gretton et al. 2012, "A Kernel Two-Sample Test"). It is measured in units of how much images differ
in each direction, down to a share of the largest (Harchaoui et al. 2008, "Testing for Homogeneity with Kernel
Fisher Discriminant Analysis"), which finds small changes several times as often. If both are of one
distribution, it is distributed as (1/window + 1/reference) * sum(weight_i * chi2_1). The weights of the same
images that the units come from are too small, so they are multiplied by what other images gave.
"""

import base64
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtr

from perennial.base import documents, files
from perennial.base.documents import JsonFile
from perennial.base.errors import DataError
from perennial.data.images import BRIGHTNESS_BINS
from perennial.model.export_layout import REFERENCE

FEATURES = 256
LEAST_IMAGES = 50
MARK_LENGTH = 16  # digits
FOLDS = 5
RIDGE = 0.03  # of the largest variance: what is added to all, as that of few images is not known well
NEGLIGIBLE = 1e-6  # of the largest weight
TRIANGLE = "<f4"
_UPPER = np.triu_indices(FEATURES)
STEPS = 100  # of a bisection: as many as double precision needs
Bins = Annotated[list[int], Field(min_length=BRIGHTNESS_BINS, max_length=BRIGHTNESS_BINS)]


class Reference(JsonFile):
    """The validation images, as the exported model sees them."""

    weights_sha256: str  # of the model
    images: int
    layer: str  # whose output was measured
    width: int  # values of that layer
    bandwidth: float  # of the Gaussian kernel
    mean: Annotated[list[float], Field(min_length=FEATURES, max_length=FEATURES)]
    covariance: str  # of the features: its upper triangle by rows, float32, base64
    inflation: Annotated[float, Field(gt=0)]  # distances of images that it was not fitted to, over its own
    classes: dict[str, int]  # images by predicted class
    brightness: Bins  # images by mean brightness

    def distance(self, features: NDArray[np.floating]) -> float:
        """The squared distance of a window's mean features from the reference's; features: [N, FEATURES]."""
        difference = (features.mean(axis=0, dtype=np.float64) - self.mean) @ self._units.directions
        return float(difference @ difference)

    def p_value(self, distance: float, images: int) -> float:
        """The probability that a window of so many images without drift is at least as far away."""
        return tail(self._units.weights, distance / self._scale(images))

    def threshold(self, level: float, images: int) -> float:
        """The distance that a window of so many images without drift exceeds with the probability `level`."""
        return self._scale(images) * quantile(self._units.weights, level)

    def _scale(self, images: int) -> float:
        return self.inflation * (1 / images + 1 / self.images)

    @cached_property
    def _units(self) -> "Units":
        return units(unpacked(self.covariance))


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


def packed(covariance: NDArray[np.float64]) -> str:
    """A covariance as a reference holds it."""
    return base64.b64encode(covariance[_UPPER].astype(TRIANGLE).tobytes()).decode()


def unpacked(text: str) -> NDArray[np.float64]:
    """The covariance [FEATURES, FEATURES] that a reference holds.

    Raises:
        DataError: it is damaged.
    """
    found = np.zeros((FEATURES, FEATURES))
    try:
        found[_UPPER] = np.frombuffer(base64.b64decode(text, validate=True), TRIANGLE)
    except ValueError as error:
        raise DataError(f"the covariance in {REFERENCE} is damaged: {error}; export the model again") from error
    return found + np.triu(found, 1).T


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


def mark(export: Path) -> str | None:
    """A name of an export's reference, by its content; None without one. Equal ones compare with each other."""
    file = export / REFERENCE
    if not file.exists() or documents.json_object(file.read_bytes()).get("missing"):
        return None
    return files.sha256(file)[:MARK_LENGTH]


def load(export: Path) -> Reference:
    """Read the reference of an export.

    Raises:
        DataError: it has none, with the reason, or the file is damaged.
    """
    file = export / REFERENCE
    if not file.exists():
        raise DataError(f"{export} has no reference for drift: an earlier version of perennial made it")
    advice = "`dvc repro export` makes or restores it"
    if reason := documents.read_json(file, advice).get("missing"):
        raise DataError(f"{export} has no reference for drift: {reason}")
    return documents.read_checked(file, Reference, advice)
