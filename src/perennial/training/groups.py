"""Encoded examples in the order of a training, no more of them in memory than fit."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.records import pipeline
from perennial.records.manifest import Shard
from perennial.training.order import Group, Order

BLOCK = 128  # examples that are handed on at once


class Chunk(NamedTuple):
    """Examples of one group in the order they are to come in, and where that is."""

    epoch: int
    group: Group
    rows: NDArray[np.int64]  # numbers within the group
    positions: NDArray[np.int32]  # within the global batch


class Block(NamedTuple):
    """Some encoded examples."""

    images: NDArray[np.object_]  # bytes
    labels: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    positions: NDArray[np.int32]
    epoch: int


def blocks(folder: Path, order: Order, chunks: Iterator[Chunk]) -> Iterator[Block]:
    """The examples of the chunks, in their order.

    Shards are read whole. Those of the next group are read one by one as the images of this one are handed on:
    together they take no more memory than a group may. A group that comes twice in a row is read once.
    """
    group: _Shards | None = None
    following: _Shards | None = None
    for chunk, after in pairwise(chunks):
        if group is None or group.numbers != chunk.group.shards:
            group = following or _Shards(folder, order, chunk.group)
        stays = after.group.shards == chunk.group.shards
        following = None if stays else _Shards(folder, order, after.group)
        labels, images = group.examples()
        ordinals = order.ordinals(chunk.group)
        size = sum(order.shards[number].bytes for number in chunk.group.shards)
        if following is not None:  # what other workers take is not needed here
            others = np.ones(len(images), np.bool_)
            others[chunk.rows] = False
            images[others] = None
        for start in range(0, len(chunk.rows), BLOCK):
            rows = chunk.rows[start : start + BLOCK]
            yield Block(
                images[rows], labels[rows], ordinals[rows], chunk.positions[start : start + BLOCK], chunk.epoch
            )
            if following is not None:
                images[rows] = None
                following.read_up_to(size * (start + len(rows)) // len(chunk.rows))


class _Shards:
    """The shards of a group, in memory as far as they have been read."""

    def __init__(self, folder: Path, order: Order, group: Group) -> None:
        self.numbers = group.shards
        self._folder = folder
        self._waiting: list[Shard] = [order.shards[number] for number in group.shards]
        self._read: list[tuple[NDArray[np.int64], NDArray[np.object_]]] = []
        self._bytes = 0

    def read_up_to(self, size: int) -> None:
        """Reads on while what has been read then takes at most so many bytes."""
        while self._waiting and self._bytes + self._waiting[0].bytes <= size:
            shard = self._waiting.pop(0)
            self._read.append(pipeline.encoded(self._folder, shard))
            self._bytes += shard.bytes

    def examples(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Labels and encoded images, shard after shard."""
        self.read_up_to(self._bytes + sum(shard.bytes for shard in self._waiting))
        labels, images = zip(*self._read, strict=True)
        self._read = [(np.concatenate(labels), np.concatenate(images))]
        return self._read[0]
