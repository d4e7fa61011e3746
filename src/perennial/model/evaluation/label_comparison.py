"""The comparison of a candidate with the champion where an image has several labels: by average precision."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.model.evaluation import average_precision, comparison, diagnostics, intervals, permutation
from perennial.model.evaluation.comparison import SMALLEST, Champion, Comparison, Group, Scores
from perennial.model.evaluation.predictions import Predictions


@dataclass(frozen=True, kw_only=True)
class LabelGroup(Group):
    """A class by its average precision; examples are those with the label, won and lost by the answers."""

    @property
    def drop(self) -> float:
        """By how much the average precision is below the champion's; negative where it is above."""
        return self.champion - self.candidate


def scores(labels: NDArray[np.int8], probabilities: NDArray[np.float32], *, bins: int) -> Scores:
    """Compute scores from labels of 0 and 1 and probabilities, both [N, classes]."""
    own = np.where(labels != 0, probabilities, 1 - probabilities)
    return Scores(
        score=macro(labels, probabilities),
        loss=float(-np.log(np.maximum(own.astype(np.float64), SMALLEST)).mean()),
        calibration_error=diagnostics.reliability(probabilities.ravel(), labels.ravel() != 0, bins=bins).ece,
        recall=np.full(labels.shape[1], np.nan),
    )


def macro(labels: NDArray[np.int8], probabilities: NDArray[np.float32]) -> float:
    """The macro mean average precision, 0..1."""
    return average_precision.macro(average_precision.per_class(labels, probabilities))


def compare(candidate: Predictions, champion: Champion) -> Comparison:
    """Compare two models on the examples that count; at least one must.

    The gain in macro mean average precision has the p-value of the permutation test, and the interval of the
    infinitesimal jackknife. Won and lost are the examples on which only one gives exactly the labels.
    """
    sides = comparison.correct(candidate, champion)
    labels, own = candidate.labels[sides.rows], candidate.probabilities[sides.rows]
    other = probabilities(candidate, champion)[sides.rows]
    seed = f"{candidate.model} {champion.model} {candidate.split_digest}"
    gain = macro(labels, own) - macro(labels, other)
    influence = average_precision.influence(labels, own) - average_precision.influence(labels, other)
    half = float(scipy.special.ndtri((1 + intervals.LEVEL) / 2) * np.sqrt((influence**2).sum()))
    return replace(
        comparison.counted(candidate, champion, sides, _classes(candidate, champion, sides.rows, seed)),
        p_value=permutation.p_value(labels, own, other, seed),
        gain=gain,
        gain_low=max(-1.0, gain - half),
        gain_high=min(1.0, gain + half),
    )


def probabilities(candidate: Predictions, champion: Champion) -> NDArray[np.float32]:
    """The champion's probabilities of the candidate's examples and classes."""
    found = comparison.aligned(cast(NDArray[np.float32], champion.probabilities), candidate, champion)
    return cast(NDArray[np.float32], found[candidate.numbers])


def _classes(
    candidate: Predictions, champion: Champion, rows: NDArray[np.int64], seed: str
) -> tuple[LabelGroup, ...]:
    """The classes that have examples."""
    labels, ours = candidate.labels[rows], candidate.probabilities[rows]
    theirs = probabilities(candidate, champion)[rows]
    answers = comparison.aligned(champion.predicted, candidate, champion)[candidate.numbers][rows]
    right, known = candidate.predicted[rows] & labels, answers & labels
    won, lost = (right > known).sum(axis=0), (known > right).sum(axis=0)
    # Enough for a p-value of 0.025 after the correction for the number of classes.
    swaps, found = max(permutation.SWAPS, 40 * len(candidate.classes)), []
    for number in np.flatnonzero(labels.any(axis=0)).tolist():
        name, one = candidate.classes[number], [number]
        own, a, b = labels[:, one], ours[:, one], theirs[:, one]
        low, high = average_precision.interval(own, a, intervals.LEVEL)
        found.append(
            LabelGroup(
                name=name, examples=int(own.sum()), candidate=macro(own, a), low=low, high=high,
                champion=macro(own, b), won=int(won[number]), lost=int(lost[number]),
                p_value=permutation.p_value(own, b, a, f"{seed} {name}", swaps), judged=True,
            )
        )  # fmt: skip
    return tuple(found)
