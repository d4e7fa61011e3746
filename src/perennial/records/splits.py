"""Which example goes where: pure functions of counts, labels and seed."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise


def held_out(labels: Sequence[int], *, fraction: float, seed: int) -> frozenset[int]:
    """The indices of a stratified cut: of each class its share, at least 1 and never all.

    Chosen by SHA-256 of seed and index, because random number generators change between versions.

    Raises:
        ValueError: a class has fewer than two examples.
    """
    members: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    chosen: set[int] = set()
    for label, indices in sorted(members.items()):
        if len(indices) < 2:
            raise ValueError(f"class {label} has {len(indices)} example, too few to hold one out")
        count = min(max(round(fraction * len(indices)), 1), len(indices) - 1)
        chosen.update(sorted(indices, key=lambda index: _rank(seed, index))[:count])
    return frozenset(chosen)


def even(examples: int, shards: int) -> list[range]:
    """The examples of each shard: contiguous, sizes that differ by one at most, none empty.

    Fewer shards than asked for where there are fewer examples.
    """
    shards = max(min(shards, examples), 1)
    bounds = [examples * shard // shards for shard in range(shards + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def _rank(seed: int, index: int) -> bytes:
    return hashlib.sha256(f"{seed}:{index}".encode()).digest()
