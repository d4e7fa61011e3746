"""Which images a fold holds out: a function of digests, labels and seed; alike images stay together."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.data.records import splits
from perennial.data.tfrecord.label_arrays import LabelArray


class Groups(NamedTuple):
    """G groups of N images, each of which stays whole."""

    of: NDArray[np.int64]  # the group of each image, [N]
    names: list[str]  # of each group: the lowest digest of its images
    strata: NDArray[np.int64]  # the rarest label of each group, [G]; without any, the number of the classes


def grouped(digests: Sequence[str], labels: LabelArray, classes: int, pairs: Iterable[Sequence[int]]) -> Groups:
    """Group images that pairs of their numbers connect, also through others."""
    one, other = np.array([*pairs], np.int64).reshape(-1, 2).T
    links = scipy.sparse.coo_array((np.ones(len(one)), (one, other)), (len(digests), len(digests)))
    count, of = scipy.sparse.csgraph.connected_components(links, directed=False)
    names = dict(sorted(zip(of.tolist(), digests, strict=True), reverse=True))  # the lowest digest comes last
    has = np.zeros((count, classes + 1), np.int64)
    images, columns = labels.nonzero() if labels.ndim == 2 else (np.arange(len(labels)), labels)
    has[of[images], columns] = 1
    has[:, classes] = ~has.any(axis=1)
    strata = np.where(has, has.sum(axis=0), count + 1).argmin(axis=1)
    return Groups(of, [names[group] for group in range(count)], strata)


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


def validated(groups: Groups, rest: NDArray[np.int64], share: float, salt: str) -> NDArray[np.int64]:
    """The groups among `rest` that validate the training with the others, cut as convert cuts them."""
    strata = groups.strata[rest]
    candidates = np.flatnonzero(np.bincount(strata)[strata] > 1) if share else rest[:0]
    names = [groups.names[group] for group in rest[candidates].tolist()]
    return rest[candidates[splits.held_out(strata[candidates], fraction=share, salt=salt, names=names)]]
