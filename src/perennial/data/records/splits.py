"""Assignment of examples to splits and shards: pure functions of counts, labels, names and seed."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.data.tfrecord.label_arrays import LabelArray

RANKED_AT_ONCE = 4096
NO_LABEL = -1


def held_out(
    labels: NDArray[np.int64], *, fraction: float, salt: str, names: Sequence[str] = ()
) -> NDArray[np.bool_]:
    """Choose a stratified held-out part, mask bool [N]: a share of each class, at least 1 example, never all.

    The examples of each class with the lowest SHA-256 of the salt and their name, or their index if they have
    none: random number generators change between versions, and most named examples keep their split when
    others are added. Those that rank near the last one held out may move.
    """
    ranked = ranks(salt, names or range(len(labels)))
    chosen = np.zeros(len(labels), np.bool_)
    for label in np.flatnonzero(np.bincount(labels)):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise ValueError(f"class {label} has {len(members)} example, too few to hold one out")
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        chosen[members[np.argsort(ranked[members], kind="stable")[:count]]] = True
    return chosen


def held_out_several(
    labels: NDArray[np.uint8], *, fraction: float, salt: str, names: Sequence[str] = ()
) -> NDArray[np.bool_]:
    """Choose a held-out part that is stratified by several labels [N, classes], mask bool [N].

    Iterative stratification into two parts (Sechidis et al. 2011): the rarest label is divided first, then the
    rarest one of what is left; at last, the examples without any. Of each label with 2 examples or more, 1 is
    held out and 1 is not, as far as the labels that examples share allow it. As in `held_out`, those with the
    lowest SHA-256 are held out, so that most named examples keep their split when others are added.
    """
    ranked = ranks(salt, names or range(len(labels)))
    order = np.argsort(ranked, kind="stable")
    total = labels.sum(axis=0, dtype=np.int64)
    chosen, left = np.zeros(len(labels), np.bool_), np.ones(len(labels), np.bool_)
    held = np.zeros_like(total)  # examples of each label that are held out
    open_ = total.copy()  # ... that are not assigned yet

    def hold(candidates: NDArray[np.int64], count: int) -> None:
        """Hold out the first ones that are not the last of a label for the other part."""
        for index in candidates.tolist():
            if count <= 0:
                return
            if ((held + 1 < total) | (labels[index] == 0)).all():
                chosen[index] = True
                held[:] += labels[index]
                count -= 1

    while open_.any():
        label = int(np.argmin(np.where(open_ > 0, open_, len(labels) + 1)))
        members = order[(labels[order, label] > 0) & left[order]]
        wanted = min(max(round(fraction * total[label]), 1), total[label] - 1)
        hold(members, int(wanted - held[label]))
        left[members] = False
        open_ -= labels[members].sum(axis=0, dtype=np.int64)
    rest = order[left[order]]
    hold(rest, round(fraction * len(rest)))
    for label in np.flatnonzero((held == 0) & (total > 1)).tolist():
        if not held[label]:
            hold(order[labels[order, label] > 0], 1)
    return chosen


class Groups(NamedTuple):
    """G groups of N examples, each of which stays whole."""

    of: NDArray[np.int64]  # the group of each example, [N]
    names: Sequence[str]  # of each group
    strata: NDArray[np.int64]  # the rarest label of each group, [G]; without any, the number of the classes


def whole_groups(of: NDArray[np.int64], names: Sequence[str], labels: LabelArray, classes: int) -> Groups:
    """The groups with these names, given that of each example and its labels."""
    has = np.zeros((len(names), classes + 1), np.int64)
    examples, columns = labels.nonzero() if labels.ndim == 2 else (np.arange(len(labels)), labels)
    has[of[examples], columns] = 1
    has[:, classes] = ~has.any(axis=1)
    return Groups(of, names, np.where(has, has.sum(axis=0), len(names) + 1).argmin(axis=1))


def held_out_groups(
    groups: Groups, among: NDArray[np.int64], *, fraction: float, salt: str
) -> NDArray[np.int64]:
    """Choose groups to hold out among some: a share of those of each rarest label; the only one of it stays."""
    strata = groups.strata[among]
    candidates = among[np.bincount(strata)[strata] > 1] if fraction else among[:0]
    names = [groups.names[group] for group in candidates.tolist()]
    return candidates[held_out(groups.strata[candidates], fraction=fraction, salt=salt, names=names)]


def half(salt: str, names: Sequence[str]) -> NDArray[np.bool_]:
    """Choose about half of the names, mask bool [N]: each keeps its side whatever the others are."""
    return ranks(salt, names) < np.uint64(1 << 63)


def even(examples: int, shards: int) -> list[range]:
    """Divide examples into at most so many shards: contiguous, none empty, of sizes that differ by one."""
    shards = max(min(shards, examples), 1)
    bounds = [examples * shard // shards for shard in range(shards + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def ranks(salt: str, names: Sequence[str | int]) -> NDArray[np.uint64]:
    """The first 8 bytes of the SHA-256 of the salt and each name, as numbers [N]."""
    found = np.empty(len(names), np.uint64)
    for start in range(0, len(names), RANKED_AT_ONCE):
        part = names[start : start + RANKED_AT_ONCE]
        salted = (f"{salt}:{name}".encode("utf-8", "surrogateescape") for name in part)
        digests = b"".join(hashlib.sha256(each).digest() for each in salted)
        found[start : start + len(part)] = np.frombuffer(digests, ">u8")[::4]
    return found
