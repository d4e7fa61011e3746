"""From which probability on an image has a label: thresholds of each class, chosen on validation examples."""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perennial.base.config.release import PrecisionRule
from perennial.base.errors import listed

log = logging.getLogger(__name__)
USUAL, NEVER = 0.5, 1.0
DIGITS = range(4, 10)  # significant ones: the fewest that lie between two probabilities; 9 tell float32 apart
NAMED = 5  # classes in a message
Rule = float | str | PrecisionRule  # `evaluate.threshold`


def choose(
    labels: NDArray[np.integer], probabilities: NDArray[np.float32], rule: Rule, names: Sequence[str]
) -> list[float]:
    """The threshold of each class, 0..1, by labels of 0 and 1 and probabilities, both [N, classes].

    `f1`: the highest F1, of equal ones with the fewest labels. A precision: the most labels of which that share
    is right; 1 where no threshold reaches it. The threshold lies in the middle between the least probability
    that is taken and the greatest that is not. 0.5 for a class that no example has.
    """
    if isinstance(rule, float | int):
        return [float(rule)] * len(names)
    found = [_of_class(own != 0, p, rule) for own, p in zip(labels.T, probabilities.T, strict=True)]
    if absent := [name for name, own in zip(names, labels.T, strict=True) if not own.any()]:
        log.warning("threshold %g for %s: no validation example has this label", USUAL, listed(absent, NAMED))
    if never := [name for name, each in zip(names, found, strict=True) if each is None]:
        log.warning("threshold %g for %s: none reaches %s on validation", NEVER, listed(never, NAMED), rule)
    return [NEVER if each is None else each for each in found]


def _of_class(
    own: NDArray[np.bool_], probabilities: NDArray[np.float32], rule: str | PrecisionRule
) -> float | None:
    if not own.any():
        return USUAL
    values = np.unique(probabilities)[::-1]
    taken = len(own) - np.searchsorted(np.sort(probabilities), values)  # examples from each value on
    hits = int(own.sum()) - np.searchsorted(np.sort(probabilities[own]), values)
    if isinstance(rule, PrecisionRule):
        precise = np.flatnonzero(hits / taken >= rule.precision)
        if not precise.size:
            return None
        place = int(precise[-1])
    else:
        place = int(np.argmax(2 * hits / (taken + own.sum())))
    below = values[place + 1] if place + 1 < len(values) else np.float32(0)
    return _between(values[place], below)


def _between(above: np.float32, below: np.float32) -> float:
    """The middle with few digits, so that the order of sums on several devices does not show."""
    middle = (float(above) + float(below)) / 2
    for digits in DIGITS:
        found = float(f"{middle:.{digits}g}")
        if below < np.float32(found) <= above:
            return found
    return float(f"{float(above):.9g}")
