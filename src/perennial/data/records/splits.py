"""Assignment of examples to splits and shards: pure functions of counts, labels, names and seed."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

RANKED_AT_ONCE = 4096


def held_out(
    labels: NDArray[np.int64], *, fraction: float, salt: str, names: Sequence[str] = ()
) -> NDArray[np.bool_]:
    """Choose a stratified held-out part, mask bool [N]: a share of each class, at least 1 example, never all.

    The examples of each class with the lowest SHA-256 of the salt and their name, or their index if they have
    none: random number generators change between versions, and most named examples keep their split when
    others are added. Those that rank near the last one held out may move.
    """
    ranks = _ranks(salt, names or range(len(labels)))
    chosen = np.zeros(len(labels), np.bool_)
    for label in np.flatnonzero(np.bincount(labels)):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise ValueError(f"class {label} has {len(members)} example, too few to hold one out")
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        chosen[members[np.argsort(ranks[members], kind="stable")[:count]]] = True
    return chosen


def half(salt: str, names: Sequence[str]) -> NDArray[np.bool_]:
    """Choose about half of the names, mask bool [N]: each keeps its side whatever the others are."""
    return _ranks(salt, names) < np.uint64(1 << 63)


def even(examples: int, shards: int) -> list[range]:
    """Divide examples into at most so many shards: contiguous, none empty, of sizes that differ by one."""
    shards = max(min(shards, examples), 1)
    bounds = [examples * shard // shards for shard in range(shards + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def _ranks(salt: str, names: Sequence[str | int]) -> NDArray[np.uint64]:
    """The first 8 bytes of each SHA-256, as numbers."""
    ranks = np.empty(len(names), np.uint64)
    for start in range(0, len(names), RANKED_AT_ONCE):
        part = names[start : start + RANKED_AT_ONCE]
        digests = [
            hashlib.sha256(f"{salt}:{name}".encode("utf-8", "surrogateescape")).digest() for name in part
        ]
        ranks[start : start + len(part)] = np.frombuffer(b"".join(digests), ">u8")[::4]
    return ranks
