"""How often windows without drift count as drift, by the number of images and classes of the reference.

The penultimate values are simulated: 64 numbers, normal around the center of each class. Windows of 200 images
are drawn as the reference is, or with all values moved, and compared at the level of 0.01, at which alarms can
be counted. The peer is the asymptotic threshold of before (benchmarks/drift_before.py), which gets the same
windows. DRAWN (default 1000) is the number of windows without drift of each row, 10 of each reference.
"""

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.drift_before import Before
from perennial.model.export import reference
from perennial.model.export.reference import FEATURES

DRAWN, OF_REFERENCE = int(os.environ.get("DRAWN", "1000")), 10
MOVED = 10  # times fewer windows with drift
LEVEL, WINDOW, WIDTH = 0.01, 200, 64
ROWS = [(images, classes) for images in (50, 200, 2000) for classes in (2, 10, 50)]
PERMUTATIONS = 399  # enough for this level, and faster
APART = 3.0  # classes, in standard deviations of a class
SHIFT = 0.15  # of the values, in standard deviations of a class, with drift


def measure() -> None:
    """Simulates, prints a table and writes the results."""
    reference.PERMUTATIONS = PERMUTATIONS
    rows = []
    for images, classes in ROWS:
        rows.append({"images": images, "classes": classes, **_row(images, classes)})
        print(f"drift_references: {rows[-1]}", flush=True)
    results.write("drift_references", rows=rows, level=LEVEL, drawn=DRAWN, window=WINDOW)


def _row(images: int, classes: int) -> dict[str, Any]:
    """Shares of windows that count as drift."""
    random = np.random.default_rng(images + classes)
    found = {name: list[list[bool]]() for name in ("quiet", "quiet before", "moved", "moved before")}
    for _ in range(DRAWN // OF_REFERENCE):
        world = _World(random, classes)
        known = world.features(random, images)
        before = Before(known, WINDOW, LEVEL)
        for kind, count, shift in (("quiet", OF_REFERENCE, 0.0), ("moved", OF_REFERENCE // MOVED, SHIFT)):
            windows = [world.features(random, WINDOW, shift) for _ in range(count)]
            found[kind].append([reference.distance(each, known, LEVEL).p_value <= LEVEL for each in windows])
            found[f"{kind} before"].append([before.drifted(each) for each in windows])
    shares = {name: float(np.mean(each)) for name, each in found.items()}
    worst = {
        f"worst of {name}": float(np.mean(found[name], axis=1).max()) for name in ("quiet", "quiet before")
    }
    return {**shares, **worst}


class _World:
    """What images of some classes look like to a network."""

    def __init__(self, random: np.random.Generator, classes: int) -> None:
        self._centers = APART * random.normal(size=(classes, WIDTH))
        self._weights = random.normal(size=(WIDTH, FEATURES)) / math.sqrt(2 * WIDTH * (1 + APART**2))
        self._offsets = random.uniform(0, 2 * np.pi, FEATURES)

    def features(self, random: np.random.Generator, images: int, shift: float = 0.0) -> NDArray[np.float64]:
        """Random features, with the median distance of two images as the bandwidth."""
        centers = self._centers[random.integers(len(self._centers), size=images)]
        values = centers + random.normal(size=(images, WIDTH)) + shift
        return math.sqrt(2 / FEATURES) * np.cos(values @ self._weights + self._offsets)


if __name__ == "__main__":
    measure()
