"""The comparison of a candidate with the champion where an image has several labels: by average precision.

Its p-values are of the paired permutation test, by ranks. If two models are equally good, either could have
ranked an example as the other did: so exchange their ranks of random examples, and see how often that gives as
large a gain. Ranks, since models need not agree in how sure they are. Sources: E. J. G. Pitman, Significance
Tests Which May be Applied to Samples from Any Populations, 1937; J. Besag and P. Clifford, Sequential Monte
Carlo p-values, 1991, for the early stop.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.model.evaluation import average_precision, comparison, diagnostics, intervals
from perennial.model.evaluation.comparison import SMALLEST, Champion, Comparison, Group, Scores
from perennial.model.evaluation.predictions import Predictions

SWAPS, BLOCK = 9_984, 64  # exchanges at most (unless stated), and at once
ENOUGH = 100  # gains as large as the observed one, after which the test stops
ROUNDING = 1e-6  # of sums of precisions


@dataclass(frozen=True, kw_only=True)
class LabelGroup(Group):
    """A class by its average precision; examples are those with the label, won and lost by the answers."""

    @property
    def drop(self) -> float:
        """By how much the average precision is below the champion's; negative where it is above."""
        return self.champion - self.candidate


class _Ranks(NamedTuple):
    """The places of the n labelled examples of a class in one list of both models' ranks, the highest first."""

    own: NDArray[np.int64]  # [2 n], the example at each place
    theirs: NDArray[np.bool_]  # [2 n, 1], of which model
    counts: NDArray[np.float32]  # [4, 2 n, 1]: places and labelled ones up to it; then those of `theirs`
    moved: "scipy.sparse.csr_array"  # [2 n, N], the examples before a place by one model, behind by the other
    own_moved: "scipy.sparse.csr_array"  # the labelled ones


def scores(labels: NDArray[np.int8], probabilities: NDArray[np.float32], *, bins: int) -> Scores:
    """Compute scores from labels of 0 and 1 and probabilities, both [N, classes]."""
    own = np.where(labels != 0, probabilities, 1 - probabilities)
    return Scores(
        score=macro(labels, probabilities),
        loss=float(-np.log(np.maximum(own.astype(np.float64), SMALLEST)).mean()),
        calibration_error=diagnostics.reliability(probabilities.ravel(), labels.ravel() != 0, bins=bins).ece,
        recall=np.full(labels.shape[1], np.nan),
    )


def macro(labels: NDArray[np.integer], probabilities: NDArray[np.float32]) -> float:
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
        p_value=p_value(labels, own, other, seed),
        gain=gain,
        gain_low=max(-1.0, gain - half),
        gain_high=min(1.0, gain + half),
    )


def probabilities(candidate: Predictions, champion: Champion) -> NDArray[np.float32]:
    """The champion's probabilities of the candidate's examples and classes."""
    values = cast(NDArray[np.float32], champion.probabilities)
    found = comparison.aligned(values, champion.classes, candidate.classes)
    return cast(NDArray[np.float32], found[candidate.numbers])


def _classes(
    candidate: Predictions, champion: Champion, rows: NDArray[np.int64], seed: str
) -> tuple[LabelGroup, ...]:
    labels, ours = candidate.labels[rows], candidate.probabilities[rows]
    theirs = probabilities(candidate, champion)[rows]
    answers = comparison.aligned(champion.predicted, champion.classes, candidate.classes)
    answers = answers[candidate.numbers][rows]
    right, known = candidate.predicted[rows] & labels, answers & labels
    won, lost = (right > known).sum(axis=0), (known > right).sum(axis=0)
    # Enough for a p-value of 0.025 after the correction for the number of classes.
    swaps, found = max(SWAPS, 40 * len(candidate.classes)), []
    for number in np.flatnonzero(labels.any(axis=0)).tolist():
        name, one = candidate.classes[number], [number]
        own, a, b = labels[:, one], ours[:, one], theirs[:, one]
        low, high = average_precision.interval(own, a, intervals.LEVEL)
        found.append(
            LabelGroup(
                name=name, examples=int(own.sum()), candidate=macro(own, a), low=low, high=high,
                champion=macro(own, b), won=int(won[number]), lost=int(lost[number]),
                p_value=p_value(own, b, a, f"{seed} {name}", swaps), judged=True,
            )
        )  # fmt: skip
    return tuple(found)


def p_value(
    labels: NDArray[np.integer], ours: NDArray[np.floating], theirs: NDArray[np.floating], seed: str,
    swaps: int = SWAPS,
) -> float:  # fmt: skip
    """How often equally good models gain at least this much macro average precision; arrays are [N, classes].

    One-sided, of the gain of `ours` over `theirs`; 1 if no class has a label. `seed` draws the exchanges.
    """
    classes = [_ranks(*each) for each in zip(labels.T != 0, ours.T, theirs.T, strict=True)]
    classes = [each for each in classes if each.own.size]
    if not classes:
        return 1.0
    observed = _gains(classes, np.zeros((len(labels), 1), np.float32))[0] - ROUNDING
    reached = 0
    for done in range(0, swaps, BLOCK):
        hits = np.cumsum(_gains(classes, _swapped(seed, done, len(labels))) >= observed) + reached
        if hits[-1] >= ENOUGH:
            return ENOUGH / (done + int(np.searchsorted(hits, ENOUGH)) + 1)
        reached = int(hits[-1])
    return (reached + 1) / (done + BLOCK + 1)


def _ranks(own: NDArray[np.bool_], ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> _Ranks:
    examples = len(own)
    ranks = -np.concatenate([scipy.stats.rankdata(ours), scipy.stats.rankdata(theirs)])
    labelled = np.flatnonzero(np.tile(own, 2))
    places = labelled[np.argsort(ranks[labelled], kind="stable")]
    at, of = ranks[places], np.arange(2 * examples) < examples
    counts = [
        np.searchsorted(np.sort(ranks[mask]), at, side="right")
        for mask in (slice(None), np.tile(own, 2), ~of, ~of & np.tile(own, 2))
    ]
    first = np.searchsorted(at, ranks).reshape(2, examples)
    return _Ranks(
        own=places % examples,
        theirs=(places >= examples)[:, None],
        counts=np.array(counts, np.float32)[:, :, None],
        moved=_moved(first, np.flatnonzero(first[0] != first[1]), len(places)),
        own_moved=_moved(first, np.flatnonzero(own & (first[0] != first[1])), len(places)),
    )


def _moved(first: NDArray[np.int64], examples: NDArray[np.int64], places: int) -> "scipy.sparse.csr_array":
    """1 where an exchanged example begins to count for the champion, -1 where it would have begun."""
    signs = np.repeat(np.array([1, -1], np.float32), len(examples))
    entries = (signs, (first[:, examples].ravel(), np.tile(examples, 2)))
    return scipy.sparse.coo_array(entries, shape=(places + 1, first.shape[1])).tocsr()[:places]


def _swapped(seed: str, done: int, examples: int) -> NDArray[np.float32]:
    """1 for the examples that are exchanged in each swap of a block, [N, block]."""
    bits = hashlib.shake_256(f"{seed} {done}".encode()).digest(examples * BLOCK // 8)
    return np.unpackbits(np.frombuffer(bits, np.uint8)).reshape(examples, BLOCK).astype(np.float32)


def _gains(classes: Sequence[_Ranks], swapped: NDArray[np.float32]) -> NDArray[np.float64]:
    """The gain in macro average precision after each swap, [block]."""
    total = np.zeros(swapped.shape[1])
    for each in classes:
        places, hits, their_places, their_hits = each.counts
        their_places = their_places + np.cumsum(each.moved @ swapped, axis=0)
        their_hits = their_hits + np.cumsum(each.own_moved @ swapped, axis=0)
        is_theirs = (swapped[each.own] != 0) != each.theirs
        precisions = np.where(is_theirs, -their_hits, hits - their_hits) / np.where(
            is_theirs, their_places, places - their_places
        )
        total += precisions.sum(axis=0, dtype=np.float64) * (2 / len(each.own))
    return total / len(classes)
