"""Windows of traffic, compared with the reference of the champion's export: distance, explanation and alarm."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, kolmogorov

from perennial.data.images import BRIGHTNESS_BINS
from perennial.data.validation import drift
from perennial.model.export import reference as references
from perennial.model.export.reference import Reference

LEVEL = 0.001  # probability of a window beyond its threshold, if nothing has changed
OF_LAST, ENOUGH = 3, 2  # an alarm is so many windows beyond their thresholds, of the last so many
LEAST_EXPECTED = 5  # images of a class in a window; chi-square takes rarer classes together


class Content(NamedTuple):
    """What is known of the images of a window."""

    start: str  # when the first one came, ISO 8601
    end: str
    features: NDArray[np.float32]  # [N, 256]
    brightness: NDArray[np.float32]  # [N], 0..255
    classes: Sequence[str]  # as the champion predicted them


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window of traffic. `drifted`: it is further from the reference than the threshold for its size."""

    start: str
    end: str
    images: int
    distance: float  # squared, of the mean features
    threshold: float
    p_value: float  # of the distance
    drifted: bool
    label: str  # class whose share differs most
    label_share: float  # in the window, 0..1
    label_share_before: float  # in the reference
    labels_p_value: float  # of all shares, by chi-square
    brightness: float  # mean, 0..255
    brightness_distance: float  # Kolmogorov-Smirnov
    brightness_p_value: float

    def in_words(self) -> list[str]:
        """The comparison, and what may explain it."""
        differs = "expected" if self.drifted else "which is"
        before = f"before {self.label_share_before:.3f}"
        classes = f"{self.label_share:.3f} of the predictions are {self.label}, {before}"
        return [
            (
                f"{self.images} images until {self.end[:19]}: distance {self.distance:.4f}, {differs} at most "
                f"{self.threshold:.4f} (p {self.p_value:.2g})"
            ),
            f"{classes}; all classes: p {self.labels_p_value:.2g}",
            (
                f"mean brightness {self.brightness:.1f}, that of {self.brightness_distance:.3f} of the images "
                f"differs: p {self.brightness_p_value:.2g}"
            ),
        ]


def compare(content: Content, reference: Reference) -> Window:
    """Compare a window with the reference."""
    images = len(content.features)
    found = references.distance(content.features, references.unpacked(reference.features), LEVEL)
    counts = {name: content.classes.count(name) for name in {*reference.classes, *content.classes}}
    largest = drift.labels(counts, reference.classes)
    name = str(largest.where)
    bins = (content.brightness * BRIGHTNESS_BINS / 256).astype(int)
    histogram = np.bincount(bins, minlength=BRIGHTNESS_BINS).tolist()
    apart = drift.brightness(histogram, reference.brightness).distance
    return Window(
        start=content.start,
        end=content.end,
        images=images,
        distance=found.squared,
        threshold=found.threshold,
        p_value=found.p_value,
        drifted=found.p_value <= LEVEL,
        label=name,
        label_share=counts[name] / images,
        label_share_before=reference.classes.get(name, 0) / reference.images,
        labels_p_value=_chi_square(counts, reference.classes),
        brightness=float(content.brightness.mean()),
        brightness_distance=apart,
        brightness_p_value=float(
            kolmogorov(apart * (images * reference.images / (images + reference.images)) ** 0.5)
        ),
    )


def _chi_square(counts: Mapping[str, int], before: Mapping[str, int]) -> float:
    """The p-value of the hypothesis that two tables of counts have equal shares."""
    total = sum(counts.values()) + sum(before.values())
    share = sum(counts.values()) / total
    table, rare = list[tuple[int, int]](), [0, 0]
    for name, now in counts.items():
        pair = (now, before.get(name, 0))
        if sum(pair) * share >= LEAST_EXPECTED:
            table.append(pair)
        else:
            rare = [rare[0] + pair[0], rare[1] + pair[1]]
    if sum(rare):
        table.append((rare[0], rare[1]))
    if len(table) < 2:
        return 1.0
    found = np.array(table, np.float64)
    expected = found.sum(axis=1, keepdims=True) * found.sum(axis=0) / found.sum()
    return float(chdtrc(len(table) - 1, ((found - expected) ** 2 / expected).sum()))


def alarm_since(windows: Iterable[Window]) -> str | None:
    """The end of the window, in order, that raised an alarm which lasts; None: no alarm."""
    drifted, since = deque[bool](maxlen=OF_LAST), None
    for window in windows:
        drifted.append(window.drifted)
        if sum(drifted) < ENOUGH:
            since = None
        elif since is None:
            since = window.end
    return since
