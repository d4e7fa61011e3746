"""The paired permutation test of average precision, by ranks; no TensorFlow.

If two models are equally good, either could have ranked an example as the other did: so exchange their ranks
of random examples, and see how often that gives as large a gain. Ranks, since models need not agree in how sure
they are. Sources: E. J. G. Pitman, Significance Tests Which May be Applied to Samples from Any Populations,
1937; J. Besag and P. Clifford, Sequential Monte Carlo p-values, 1991, for the early stop.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

SWAPS, BLOCK = 9_984, 64  # exchanges at most (unless stated), and at once
ENOUGH = 100  # gains as large as the observed one, after which the test stops
ROUNDING = 1e-6  # of sums of precisions


class _Ranks(NamedTuple):
    """The places of the n labelled examples of a class in one list of both models' ranks, the highest first."""

    own: NDArray[np.int64]  # [2 n], the example at each place
    theirs: NDArray[np.bool_]  # [2 n, 1], of which model
    counts: NDArray[np.float32]  # [4, 2 n, 1]: places and labelled ones up to it; then those of `theirs`
    moved: "scipy.sparse.csr_array"  # [2 n, N], the examples before a place by one model, behind by the other
    own_moved: "scipy.sparse.csr_array"  # the labelled ones


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
