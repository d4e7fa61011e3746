"""The order of the training examples: a pure function of seed, epoch, shard sizes and memory.

A split that fits the memory limit is shuffled as a whole. A larger one is read in groups of whole shards that
fit: the shards in shuffled order, the examples shuffled within each group. The ordinal of an example is its
index in manifest order.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.data.records import splits
from perennial.data.records.manifest import Shard

MEGABYTE = 10**6


class Group(NamedTuple):
    """Shards that are shuffled together."""

    number: int  # within the epoch
    shards: tuple[int, ...]  # indices, ascending
    first: int  # index in the epoch of the group's first example
    examples: int


@dataclass(frozen=True)
class Shuffle:
    """The order of the examples in every epoch."""

    shards: Sequence[Shard]
    seed: int
    memory_mb: int

    @property
    def examples(self) -> int:
        """Examples of the split."""
        return sum(shard.examples for shard in self.shards)

    def groups(self, epoch: int) -> list[Group]:
        """The groups of an epoch, in reading order."""
        shuffled = permutation(len(self.shards), self.seed, epoch, "shards").tolist()
        groups, first = [], 0
        for number, part in enumerate(splits.even(len(self.shards), self._group_count())):
            shards = tuple(sorted(shuffled[part.start : part.stop]))
            examples = sum(self.shards[shard].examples for shard in shards)
            groups.append(Group(number, shards, first, examples))
            first += examples
        return groups

    def rows(self, epoch: int, group: Group) -> NDArray[np.int64]:
        """The shuffled order of a group's examples, as indices into its concatenated shards."""
        return permutation(group.examples, self.seed, epoch, f"group {group.number}")

    def ordinals(self, group: Group) -> NDArray[np.int64]:
        """The ordinals of a group's examples, shard after shard."""
        bounds = np.cumsum([0, *(shard.examples for shard in self.shards)])
        parts = [np.arange(bounds[shard], bounds[shard + 1], dtype=np.int64) for shard in group.shards]
        return np.concatenate(parts)

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """The ordinals of all examples in the order of an epoch."""
        return np.concatenate([self.ordinals(group)[self.rows(epoch, group)] for group in self.groups(epoch)])

    def quality(self) -> str:
        """Describe how well the examples are shuffled, for the log."""
        count, shards = self._group_count(), len(self.shards)
        if count == 1:
            return f"full shuffle of {self.examples:,} examples"
        fewest = shards // count
        least = f"{sum(sorted(shard.examples for shard in self.shards)[:fewest]):,} of {self.examples:,}"
        return f"shuffled within groups of at least {least} examples ({fewest} of {shards} shards)"

    def _group_count(self) -> int:
        """The smallest number of groups that fit the memory limit for any order; one shard may exceed it."""
        sizes, memory = [shard.bytes for shard in self.shards], self.memory_mb * MEGABYTE
        return 1 if sum(sizes) <= memory else math.ceil(len(sizes) / max(memory // max(sizes), 1))


@dataclass(frozen=True, kw_only=True)
class Slices:
    """The slices of each global batch that the replicas of one worker take.

    A batch is split into contiguous slices whose sizes differ by at most one. If the last batch has fewer
    examples than there are replicas, each replica gets the whole batch, because batch normalization cannot
    handle an empty slice.
    """

    examples: int  # per epoch
    batch_size: int  # global
    replicas: range = range(1)  # of this worker
    of: int = 1  # total number of replicas of all workers

    @property
    def steps(self) -> int:
        """Batches per epoch; the last one may be short."""
        return -(-self.examples // self.batch_size)

    def sizes(self, skip: int) -> NDArray[np.int64]:
        """The sizes of the slices of an epoch, batch by batch, rotated by `skip` batches."""
        batches = np.full(self.steps, self.batch_size)
        batches[-1] = self.examples - (self.steps - 1) * self.batch_size
        bounds = batches[:, None] * np.arange(self.replicas.start, self.replicas.stop + 1) // self.of
        sizes = np.where(batches[:, None] < self.of, batches[:, None], np.diff(bounds, axis=1))
        return np.roll(sizes, -skip, axis=0).ravel()

    def own(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Select the `indices` into an epoch that these replicas take, once for each replica that takes it."""
        positions = indices % self.batch_size
        batches = np.minimum(self.batch_size, self.examples - (indices - positions))
        begin, end = (batches * bound // self.of for bound in (self.replicas.start, self.replicas.stop))
        whole = batches < self.of
        cut = indices[~whole & (positions >= begin) & (positions < end)]
        return np.concatenate([cut, np.tile(indices[whole], len(self.replicas))])


def permutation(count: int, seed: int, epoch: int, purpose: str) -> NDArray[np.int64]:
    """The numbers 0 to count - 1, shuffled."""
    return np.argsort(random_words(count, seed, epoch, purpose), kind="stable")


def random_words(count: int, seed: int, epoch: int, purpose: str) -> NDArray[np.uint64]:
    """Random 64-bit words, which also draw synthetic examples.

    They are raw words of the bit generator, which NumPy guarantees to stay the same, unlike the streams of its
    Generator (NEP 19).
    """
    digest = hashlib.sha256(f"{seed}:{epoch}:{purpose}".encode()).digest()
    return np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64)).random_raw(count)
