"""Search for duplicate images: exact ones anywhere, and near ones across splits, where they leak.

Near ones are found by hash (`near`) and confirmed by small versions of both images (`are_alike`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.data.images import decode

# Maximum comparisons per record, which bounds the cost of a search whatever the images.
COMPARISONS, FEW_RECORDS = 3_000, 30_000  # fewer records get the budget of this many
CHUNK = 1 << 16  # comparisons made at once
SIDE = 24  # pixels of a small version
UNEXPLAINED = 0.1  # maximum share of the variance of a copy that the other image does not explain


class Exact(NamedTuple):
    """Groups of records that hold equal pixels, each in ascending order, ordered by their first record."""

    within: list[NDArray[np.int64]]  # all in one split
    across: list[NDArray[np.int64]]  # in two splits or more


class Near(NamedTuple):
    """Pairs of records of different splits that look alike."""

    pairs: NDArray[np.int64]  # [M, 2], the lower number first; the closest pairs first, then by number
    complete: bool  # whether these are all


def exact(digests: NDArray[np.uint64], splits: NDArray[np.uint8]) -> Exact:
    """Group records with equal digests [N, 2], separately within one split and across splits [N]."""
    halves = np.sort(digests[:, 0])
    twice = np.unique(halves[1:][halves[1:] == halves[:-1]])
    order = np.flatnonzero(np.isin(digests[:, 0], twice))  # few: only these need their second half
    found = Exact([], [])
    if len(order):
        order = order[np.lexsort((digests[order, 1], digests[order, 0]))]
        starts = np.flatnonzero((digests[order[1:]] != digests[order[:-1]]).any(axis=1)) + 1
        lows, highs = (each.reduceat(splits[order], [0, *starts]).tolist() for each in (np.minimum, np.maximum))
        groups = zip(np.split(order, starts), lows, highs, strict=True)
        for group, low, high in sorted(groups, key=lambda each: each[0][0]):
            if len(group) > 1:
                (found.within if low == high else found.across).append(group)
    return found


def near(
    hashes: NDArray[np.uint64],
    splits: NDArray[Any],
    *,
    distance: int,
    most: int,
    digests: NDArray[np.uint64] | None = None,
) -> Near:
    """Find up to `most` pairs of records across splits whose hashes [N] differ by at most `distance` bits.

    Exact duplicates (equal digests [N, 2]) are left out. `COMPARISONS` per record bound work and
    memory, at the cost of the most frequent hashes. Method: the bits are divided into distance + 1
    bands; two hashes within the distance share at least one of them (pigeonhole principle).
    """
    nodes = _Nodes(hashes, splits)
    budget = COMPARISONS * max(len(hashes), FEW_RECORDS)
    found, count, complete = [np.empty((0, 2), np.int64)], 0, True
    for band in range(distance + 1):
        share = _Budget(budget // (distance + 1))  # one each, so that all short runs are compared
        for couples in _couples(nodes, band, distance, share):
            for pairs in _pairs(nodes, couples, digests, share):
                found.append(pairs)
                count += len(pairs)
                if count > most:
                    return _ordered(found, hashes, most, complete=False)
        complete &= not share.overdrawn
    return _ordered(found, hashes, most, complete=complete)


class _Nodes:
    """Records with the same hash in the same split, grouped as nodes: a frequent hash is compared once."""

    def __init__(self, hashes: NDArray[np.uint64], splits: NDArray[Any]) -> None:
        # The largest split comes last and is never compared with itself, which would be most of the work.
        rank = np.argsort(np.argsort(np.bincount(splits, minlength=256), kind="stable")).astype(splits.dtype)
        ranks = rank[splits]
        self.largest = ranks.max(initial=0)
        self.records = np.lexsort((hashes, ranks)).astype(np.uint32)
        ranks, values = ranks[self.records], hashes[self.records]
        new = np.ones(len(hashes), bool)
        new[1:] = (values[1:] != values[:-1]) | (ranks[1:] != ranks[:-1])
        self.starts = np.flatnonzero(new).astype(np.uint32)
        self.hashes, self.ranks = values[new], ranks[new]

    def spans(self, nodes: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start in `records` and number of records of some nodes."""
        starts = self.starts[nodes].astype(np.int64)
        following = np.minimum(nodes + 1, len(self.starts) - 1)
        stops = np.where(following > nodes, self.starts[following], len(self.records))
        return starts, stops - starts


@dataclass
class _Budget:
    """A budget of comparisons."""

    left: int
    overdrawn: bool = False

    def spend(self, comparisons: int) -> bool:
        """Spend comparisons; returns whether enough were left."""
        self.overdrawn |= comparisons > self.left
        self.left -= comparisons
        return not self.overdrawn


def _couples(nodes: _Nodes, band: int, distance: int, budget: _Budget) -> Iterator[NDArray[np.uint32]]:
    """Yield couples [2, K] of nodes of different splits, within the distance, first equal in this band."""
    masks = [np.uint64(sum(1 << bit for bit in range(first, 64, distance + 1))) for first in range(band + 1)]
    # Stable: the order in which a quick sort leaves equal keys depends on the processor.
    order = np.argsort(nodes.hashes & masks[band], kind="stable").astype(np.uint32)
    hashes = nodes.hashes[order]
    stops = np.append(np.flatnonzero((hashes[1:] ^ hashes[:-1]) & masks[band]) + 1, len(order))  # of the runs
    rows = np.flatnonzero(nodes.ranks[order] != nodes.largest)
    counts = stops[np.searchsorted(stops, rows, side="right")] - rows - 1  # with all later ones of the run
    # Short runs first: a long one holds frequent hashes and may use up the budget.
    shortest = np.argsort(counts, kind="stable")
    rows, counts = rows[shortest], counts[shortest]
    for owners, offsets in _counted(counts):
        if not budget.spend(len(owners)):
            return
        left = rows[owners]
        right = left + 1 + offsets
        difference = hashes[left] ^ hashes[right]
        close = np.flatnonzero(np.bitwise_count(difference) <= distance)
        couples, difference = order[np.stack((left[close], right[close]))], difference[close]
        new = nodes.ranks[couples[0]] != nodes.ranks[couples[1]]
        for mask in masks[:-1]:
            new &= (difference & mask) != 0
        yield couples[:, new]


def _pairs(
    nodes: _Nodes, couples: NDArray[np.uint32], digests: NDArray[np.uint64] | None, budget: _Budget
) -> Iterator[NDArray[np.int64]]:
    """Expand couples of nodes to pairs [M, 2] of records, lower number first, without equal digests."""
    (left, left_sizes), (right, right_sizes) = nodes.spans(couples[0]), nodes.spans(couples[1])
    for owners, offsets in _counted(left_sizes * right_sizes):
        if not budget.spend(len(owners)):
            return
        line, column = np.divmod(offsets, right_sizes[owners])
        records = nodes.records[np.stack((left[owners] + line, right[owners] + column), axis=1)]
        if digests is not None:
            records = records[(digests[records[:, 0]] != digests[records[:, 1]]).any(axis=1)]
        yield np.sort(records.astype(np.int64), axis=1)


def _counted(counts: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For each i, yield i with the numbers below counts[i], in chunks."""
    stops = np.cumsum(counts)
    total = int(stops[-1]) if len(stops) else 0
    for start in range(0, total, CHUNK):
        stop = min(start + CHUNK, total)
        first, last = np.searchsorted(stops, (start, stop - 1), side="right")
        shares = np.diff(np.minimum(stops[first : last + 1], stop), prepend=start)
        owners = np.repeat(np.arange(first, last + 1), shares)
        yield owners, np.arange(start, stop) - (stops[owners] - counts[owners])


def _ordered(found: list[NDArray[np.int64]], hashes: NDArray[np.uint64], most: int, *, complete: bool) -> Near:
    pairs = np.concatenate(found)
    distances = np.bitwise_count(hashes[pairs[:, 0]] ^ hashes[pairs[:, 1]])
    order = np.lexsort((pairs[:, 1], pairs[:, 0], distances))[:most]
    return Near(pairs[order], complete)


def small_version(encoded: bytes) -> NDArray[np.float32]:
    """The luma of a valid image file at 24 x 24 pixels, with mean 0."""
    opened = decode.opened(encoded)
    opened.draft("L", (4 * SIDE, 4 * SIDE))  # decode a JPEG only at the resolution needed
    opened.load()
    image = decode.plain(opened).convert("L")
    if (factor := min(image.size) // (4 * SIDE)) > 1:
        image = image.reduce(factor)
    luma = np.asarray(image.resize((SIDE, SIDE), PIL.Image.Resampling.BILINEAR), np.float32)
    centred: NDArray[np.float32] = luma - luma.mean()
    return centred


def are_alike(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two small versions differ only in brightness, contrast and a little detail."""
    common, variances = max(float((one * other).sum()), 0), float((one**2).sum()) * float((other**2).sum())
    return variances > 0 and common**2 >= (1 - UNEXPLAINED) * variances
