"""Which images a fold holds out: a function of digests, labels and seed; alike images stay together."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.data.records import splits
from perennial.data.records.splits import Groups
from perennial.data.tfrecord.label_arrays import LabelArray


def equal(values: Sequence[str | int]) -> list[tuple[int, int]]:
    """The pairs of numbers that connect all equal values; an empty text equals no other."""
    there = sorted((value, number) for number, value in enumerate(values) if value != "")
    return [(one, other) for (value, one), (next_, other) in pairwise(there) if value == next_]


def grouped(digests: Sequence[str], labels: LabelArray, classes: int, pairs: Iterable[Sequence[int]]) -> Groups:
    """Group images that pairs of their numbers connect, also through others."""
    one, other = np.array([*pairs], np.int64).reshape(-1, 2).T
    links = scipy.sparse.coo_array((np.ones(len(one)), (one, other)), (len(digests), len(digests)))
    count, of = scipy.sparse.csgraph.connected_components(links, directed=False)
    names = dict(sorted(zip(of.tolist(), digests, strict=True), reverse=True))  # the lowest digest comes last
    return splits.whole_groups(of, [names[group] for group in range(count)], labels, classes)


def assigned(groups: Groups, classes: Sequence[str], count: int, seed: int) -> NDArray[np.int64]:
    """The fold of each group, [G]: equal parts of the groups of each class, in the order of their SHA-256.

    With several labels an image, the rarest label of a group counts as its class. Most groups keep their fold
    when others are added; those near the border of two folds may move. Of a class with two groups or more,
    never all are in one fold.
    """
    ranked, found = splits.ranks(f"fold {seed}", groups.names), np.empty_like(groups.strata)
    for stratum in np.unique(groups.strata).tolist():
        members = np.flatnonzero(groups.strata == stratum)
        members = members[np.argsort(ranked[members], kind="stable")]
        sizes = np.bincount(groups.of)[members]
        ends = np.cumsum(sizes)
        # Else the same folds would get one example more of every class.
        first = int(splits.ranks(f"first fold {seed}", [*classes, ""][stratum : stratum + 1])[0]) % count
        found[members] = ((2 * ends - sizes) * count // (2 * ends[-1]) + first) % count
    return found
