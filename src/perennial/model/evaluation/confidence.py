"""Make confidence mean what it says: a temperature, and a threshold below which the answer is unknown.

Of several labels an image: a threshold for each class, from which on an image has that label. All of them come
from validation examples and hold while images resemble these, for all answers together. Sources:
C. Guo et al., On Calibration of Modern Neural Networks, 2017. Y. Geifman and R. El-Yaniv, Selective
Classification for Deep Neural Networks, 2017. A. Angelopoulos et al., Learn then Test, 2021.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.base.config.release import PrecisionRule
from perennial.base.errors import DataError, listed
from perennial.model.evaluation import intervals

log = logging.getLogger(__name__)
LOWEST, HIGHEST = 0.2, 10.0  # temperatures
DIGITS = 4  # significant ones of a temperature: the order of sums on several devices must not show
BLOCK = 1 << 20  # logits in double precision at once
RISK = 0.05  # of a threshold under which more of the answers are wrong than was stated
# Fixed before any example is seen, as the proof needs; closer together where a network is sure.
GRID = (*(float(f"{each:.6g}") for each in 1 / (1 + np.exp(-np.arange(14, -7, -0.25)))), 0.0)
USUAL, NEVER = 0.5, 1.0  # thresholds of a class without examples, and of one that reaches no precision
BETWEEN = range(4, 10)  # digits of a threshold, the fewest that lie between two probabilities; 9 tell all apart
NAMED = 5  # classes in a message
Rule = float | str | PrecisionRule  # `evaluate.threshold`


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What became of examples under a threshold."""

    examples: int
    answered: int
    wrong: int  # of those answered

    @property
    def coverage(self) -> float:
        """The share of the examples that is answered, 0..1."""
        return self.answered / self.examples

    @property
    def error(self) -> float | None:
        """The share of the answers that is wrong, 0..1; None without answers."""
        return self.wrong / self.answered if self.answered else None


def fit_temperature(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """The temperature with the lowest mean cross-entropy: logits [N, classes], labels [N].

    The cross-entropy is convex in the inverse temperature, so there is one minimum. Without a mistake it lies
    at 0, at which the model would be sure of everything: then the result is 1, which changes nothing.
    """
    mistakes = int((logits.argmax(axis=1) != labels).sum())
    if not mistakes:
        log.warning(
            "the model makes no mistake on %d validation examples, so they do not tell how sure it may be: "
            "the temperature is 1, which changes nothing; hold out more (dataset.validation_fraction)",
            len(labels),
        )  # fmt: skip
        return 1.0
    low, high = 1 / HIGHEST, 1 / LOWEST
    if _slope(logits, labels, low) >= 0:
        inverse = low
    elif _slope(logits, labels, high) <= 0:
        inverse = high
    else:
        inverse = scipy.optimize.brentq(lambda each: _slope(logits, labels, each), low, high, xtol=1e-7)
    temperature = float(f"{1 / inverse:.{DIGITS}g}")
    at_limit = ", the limit" if temperature in {LOWEST, HIGHEST} else ""
    log.info(
        "temperature %g%s, from %d validation examples with %d mistakes",
        temperature, at_limit, len(labels), mistakes,
    )  # fmt: skip
    return temperature


def _slope(logits: NDArray[np.float32], labels: NDArray[np.int64], inverse: float) -> float:
    """The derivative of the summed cross-entropy by the inverse temperature."""
    total, rows = 0.0, max(1, BLOCK // logits.shape[1])
    for start in range(0, len(labels), rows):
        block = logits[start : start + rows].astype(np.float64)
        block -= block.max(axis=1, keepdims=True)
        expected = (scipy.special.softmax(inverse * block, axis=1) * block).sum(axis=1)
        total += float((expected - block[np.arange(len(block)), labels[start : start + rows]]).sum())
    return total


def needed(max_error: float) -> int:
    """The fewest validation examples that, all of them right, can show an error of at most this."""
    return math.ceil(math.log(RISK) / math.log1p(-max_error))


def require_enough(examples: int, max_error: float) -> None:
    """Check that the validation split is large enough to show an error of at most `max_error`."""
    if examples < (least := needed(max_error)):
        shown = math.ceil(1e4 * -math.expm1(math.log(RISK) / examples)) / 1e4
        raise DataError(
            f"evaluate.max_error {max_error:g} needs {least} validation examples or more, and there are "
            f"{examples}; nothing was written; set it to {shown:g} or more, or hold out more "
            "(dataset.validation_fraction)"
        )


def fit_threshold(
    confidence: NDArray[np.float32], correct: NDArray[np.bool_], max_error: float
) -> float | None:
    """The lowest confidence from which answers keep an error; None if they do from none. Arrays are [N].

    With a probability of 95 % over the draw of the examples, at most `max_error` of the answers to further such
    images are wrong. Each threshold of a fixed grid is tested from the strictest on, by the one-sided limit of
    Clopper and Pearson, and the first that fails ends the search: so each test may use the whole 5 %. It starts
    where there are enough examples to pass at all, which depends on confidences alone.
    """
    order = np.argsort(-confidence, kind="stable")
    mistakes = np.concatenate([[0], np.cumsum(~correct[order])])
    # In double precision, as the thresholds are compared where images are classified.
    answered = np.searchsorted(-confidence[order].astype(np.float64), -np.array(GRID), side="right")
    found = None
    for threshold, count in zip(GRID, answered.tolist(), strict=True):
        if count < needed(max_error):
            continue
        # The upper end of a two-sided interval with twice the risk.
        if intervals.share(int(mistakes[count]), count, 1 - 2 * RISK)[1] > max_error:
            break
        found = threshold
    return found


def answered(confidence: NDArray[np.float32], correct: NDArray[np.bool_], threshold: float | None) -> Answered:
    """Count what becomes of examples under a threshold; without one, none is answered."""
    kept = np.zeros(len(correct), np.bool_) if threshold is None else confidence >= np.float64(threshold)
    return Answered(examples=len(correct), answered=int(kept.sum()), wrong=int((kept & ~correct).sum()))


def choose_thresholds(
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
    for digits in BETWEEN:
        found = float(f"{middle:.{digits}g}")
        if below < np.float32(found) <= above:
            return found
    return float(f"{float(above):.9g}")
