"""The order of the examples of an epoch: a pure function of seed, epoch, sizes of the shards and memory.

A split that fits the memory is shuffled as a whole. A larger one is read in groups of whole shards that fit,
the shards in shuffled order, the examples shuffled within each group. An example's ordinal is its number in the
manifest's order, from 0.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.records import splits
from perennial.records.manifest import Shard

MEGABYTE = 10**6


class Group(NamedTuple):
    """Shards that are shuffled together."""

    number: int  # within the epoch
    shards: tuple[int, ...]  # ascending
    first: int  # examples of the epoch that come before
    examples: int


@dataclass(frozen=True)
class Order:
    """The orders of all epochs."""

    shards: Sequence[Shard]
    seed: int
    memory_mb: int

    @property
    def examples(self) -> int:
        """How many the split has."""
        return sum(shard.examples for shard in self.shards)

    def groups(self, epoch: int) -> list[Group]:
        """The groups of an epoch, in the order they are read in."""
        shuffled = permutation(len(self.shards), self.seed, epoch, "shards")
        groups, first = [], 0
        for number, part in enumerate(splits.even(len(self.shards), self._group_count())):
            shards = tuple(sorted(shuffled[part.start : part.stop].tolist()))
            examples = sum(self.shards[shard].examples for shard in shards)
            groups.append(Group(number, shards, first, examples))
            first += examples
        return groups

    def rows(self, epoch: int, group: Group) -> NDArray[np.int64]:
        """The order of a group's examples: numbers within the group, whose shards stand one after the other."""
        return permutation(group.examples, self.seed, epoch, f"group {group.number}")

    def ordinals(self, group: Group) -> NDArray[np.int64]:
        """The ordinals of a group's examples, shard after shard."""
        sizes = [shard.examples for shard in self.shards]
        firsts = np.cumsum([0, *sizes])
        parts = [np.arange(firsts[shard], firsts[shard + 1], dtype=np.int64) for shard in group.shards]
        return np.concatenate(parts)

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """The ordinals of all examples in the order of an epoch."""
        return np.concatenate([self.ordinals(group)[self.rows(epoch, group)] for group in self.groups(epoch)])

    def quality(self) -> str:
        """How well the examples are mixed, in words."""
        count, shards = self._group_count(), len(self.shards)
        if count == 1:
            return f"full shuffle of {self.examples:,} examples"
        fewest = shards // count
        least = sum(sorted(shard.examples for shard in self.shards)[:fewest])
        return (
            f"shuffled within groups of at least {least:,} of {self.examples:,} examples "
            f"({fewest} of {shards} shards)"
        )

    def _group_count(self) -> int:
        """As few groups as surely fit the memory, whichever shards meet; a shard alone may be larger."""
        sizes = [shard.bytes for shard in self.shards]
        memory = self.memory_mb * MEGABYTE
        if sum(sizes) <= memory:
            return 1
        fitting = max(memory // max(sizes), 1)
        return -(-len(sizes) // fitting)


def permutation(count: int, seed: int, epoch: int, what: str) -> NDArray[np.int64]:
    """The numbers 0 to count - 1, shuffled."""
    return np.argsort(words(count, seed, epoch, what), kind="stable")


def words(count: int, seed: int, epoch: int, what: str) -> NDArray[np.uint64]:
    """Random numbers of 64 bits.

    Raw ones: NumPy keeps those as they are, but may change what its Generator makes of them. Source: NEP 19.
    """
    digest = hashlib.sha256(f"{seed}:{epoch}:{what}".encode()).digest()
    return np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64)).random_raw(count)
