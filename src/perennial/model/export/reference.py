"""The reference of an export: random features of validation images, and how a window differs from them.

The squared distance between the mean features of a window and of the reference estimates the maximum mean
discrepancy (Gretton et al. 2012, "A Kernel Two-Sample Test"). It is measured in units of how much images differ
in each direction, down to a share of the largest (Harchaoui et al. 2008, "Testing for Homogeneity with Kernel
Fisher Discriminant Analysis"), which finds small changes several times as often. The units are those of window
and reference together, so that any other choice of as many of these images could have been the window: if both
are of one distribution, the window's distance is the largest of 10,000 with a probability of 1/10,000, for any
number of images (Pitman 1937, "Significance Tests Which May be Applied to Samples From Any Populations").
"""

import base64
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from perennial.base import documents, files
from perennial.base.documents import JsonFile
from perennial.base.errors import DataError
from perennial.data.images import BRIGHTNESS_BINS
from perennial.model.export_layout import REFERENCE

FEATURES = 256
LARGEST = 0.1  # of a feature; they are at most sqrt(2 / 256)
LEAST_IMAGES, EACH = 50, 50  # images, and of a class: below, only large drifts are found
MARK_LENGTH = 16  # digits
RIDGE = 0.03  # of the largest variance: what is added to all, as that of few images is not known well
PERMUTATIONS, AT_ONCE = 9999, 200
LEAST_PERMUTATIONS = 1999  # for the threshold; more only where they can still say drift
HALF = "<f2"  # half precision: as many bytes as the noise of a feature deserves
OLD = "an earlier version of perennial made it; a new run exports one"
ADVICE = "`dvc repro export` makes or restores it"
Features = NDArray[np.floating]  # [N, FEATURES]
Bins = Annotated[list[int], Field(min_length=BRIGHTNESS_BINS, max_length=BRIGHTNESS_BINS)]


def limits(images: int, classes: int) -> str:
    """What so many validation images cannot tell of drift; empty if they are enough."""
    if images < LEAST_IMAGES:
        return f"drift in traffic needs {LEAST_IMAGES} validation images"
    return f"below {EACH} a class, only large drifts in traffic are found" if images < EACH * classes else ""


def packed(features: Features) -> str:
    """Features of images as text: base64 of float16."""
    return base64.b64encode(np.asarray(features).astype(HALF).tobytes()).decode()


def unpacked(text: str) -> NDArray[np.float32]:
    """The features [N, FEATURES] in a text."""
    content = base64.b64decode(text, validate=True)
    if len(content) % (2 * FEATURES):
        raise ValueError(f"expected {FEATURES} numbers an image")
    found = np.frombuffer(content, HALF).astype(np.float32).reshape(-1, FEATURES)
    if not (np.abs(found) <= LARGEST).all():
        raise ValueError(f"expected numbers of -{LARGEST} to {LARGEST}")
    return found


def _whole(text: str) -> str:
    unpacked(text)
    return text


Packed = Annotated[str, AfterValidator(_whole)]


class Distance(NamedTuple):
    """How far a window is from the reference."""

    squared: float
    threshold: float  # that a window without drift exceeds with the probability of the level
    p_value: float  # that a window without drift is at least as far away; at least 1/10,000


class Reference(JsonFile):
    """The validation images, as the exported model sees them."""

    weights_sha256: str  # of the model
    images: int
    layer: str  # whose output was measured
    width: int  # values of that layer
    bandwidth: float  # of the Gaussian kernel
    features: Packed
    classes: dict[str, int]  # images by predicted class
    brightness: Bins  # images by mean brightness


def distance(window: Features, reference: Features, level: float) -> Distance:
    """Compare features by a permutation test; equal arguments give equal numbers."""
    rows = np.concatenate((np.asarray(window).astype(HALF), np.asarray(reference).astype(HALF)))
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    scaled = _in_units(centred)
    scale = 1 / len(window) + 1 / len(reference)  # the difference of the means, as the sum of all rows is 0

    def squared(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        sums = (chosen.astype(np.float32) @ scaled).astype(np.float64)
        return np.asarray((sums**2).sum(axis=1) * scale**2)

    (found,) = squared(np.arange(len(rows))[None] < len(window))
    random, others, most = np.random.default_rng(0), np.empty(0), level * (PERMUTATIONS + 1)
    for start in range(0, PERMUTATIONS, AT_ONCE):
        numbers = random.random((min(AT_ONCE, PERMUTATIONS - start), len(rows)))
        last = np.partition(numbers, len(window) - 1, axis=1)[:, len(window) - 1, None]
        others = np.append(others, squared(numbers <= last))
        beyond = int((others >= found).sum())
        if len(others) >= LEAST_PERMUTATIONS and 1 + beyond > most:
            break
    exceeded = max(round(level * (len(others) + 1)), 1)  # how many may be at least as far away, with it
    threshold = float(np.sort(others)[-exceeded])
    return Distance(float(found), threshold, (1 + beyond) / (len(others) + 1))


def _in_units(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows in units of how much they differ in each direction, down to a share of the largest."""
    covariance = np.cov(rows, rowvar=False)
    ridge = RIDGE * np.linalg.eigvalsh(covariance)[-1] + np.finfo(float).tiny
    root = np.linalg.cholesky(covariance + ridge * np.eye(FEATURES))
    scaled: NDArray[np.float32] = np.linalg.solve(root, rows.T).T.astype(np.float32)
    return scaled


def mark(export: Path) -> str | None:
    """A name of an export's reference, by its content; None without one. Equal ones compare with each other."""
    file = export / REFERENCE
    if not file.exists() or documents.json_object(file.read_bytes()).get("missing"):
        return None
    return files.sha256(file)[:MARK_LENGTH]


def load(export: Path) -> Reference:
    """Read the reference of an export."""
    file = export / REFERENCE
    if not file.exists():
        raise DataError(f"{export} has no reference for drift: {OLD}")
    content = documents.read_json(file, ADVICE)
    if reason := content.get("missing"):
        raise DataError(f"{export} has no reference for drift: {reason}")
    return documents.read_checked(file, Reference, ADVICE)
