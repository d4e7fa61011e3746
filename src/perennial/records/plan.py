"""Which examples each shard holds: decided before any image is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perennial.datasets.dataset import Examples, Source, Split
from perennial.errors import DataError
from perennial.records import splits
from perennial.records.manifest import SPLITS

SHARD_BYTES = 100_000_000  # the least that `auto` puts into a shard where there is more than one
RECORD_BYTES = 150  # of a record besides its image, about
TEST_FRACTION = 0.1  # of examples that come without a test split
TEST_SALT = "test"  # not the seed: whatever is tried on validation, the same examples stay unseen


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A TFRecord file to be written: examples of a source split, by number."""

    name: str
    split: Split
    source: Split
    numbers: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A part of a shard, small enough to be held in memory."""

    source: Split
    numbers: NDArray[np.int64]
    labels: NDArray[np.int64]


def plan(
    dataset: str, source: Source, *, shards: int | Literal["auto"], fraction: float, seed: int
) -> list[Shard]:
    """The shards of train, validation and test; what the source has no split for is cut from train.

    Raises:
        DataError: a class has too few examples to be cut.
    """
    parts: dict[Split, tuple[Split, NDArray[np.int64]]] = {
        split: (split, np.arange(len(examples.labels))) for split, examples in source.splits.items()
    }
    cuts: tuple[tuple[Split, float, str], ...] = (
        ("test", TEST_FRACTION, TEST_SALT),
        ("validation", fraction, str(seed)),
    )
    for split, share, salt in cuts:
        if split not in parts:
            what = f"{dataset}: no {split} split can be cut"
            rest, held_out = _cut(source, parts["train"][1], share, salt, what)
            parts["train"], parts[split] = ("train", rest), ("train", held_out)
    return [shard for split in SPLITS for shard in _shards(dataset, source, split, *parts[split], shards)]


def _shards(
    dataset: str,
    source: Source,
    split: Split,
    source_split: Split,
    numbers: NDArray[np.int64],
    wanted: int | Literal["auto"],
) -> list[Shard]:
    """The shards of a split."""
    fitting = int(len(numbers) * record_bytes(source.splits[source_split]) // SHARD_BYTES)
    ranges = splits.even(len(numbers), fitting if isinstance(wanted, str) else wanted)
    return [
        Shard(
            name=f"{dataset}_{split}_{number:05d}-of-{len(ranges):05d}.tfrecord",
            split=split,
            source=source_split,
            numbers=numbers[part.start : part.stop],
        )
        for number, part in enumerate(ranges)
    ]


def chunks(shard: Shard, examples: Examples, chunk_bytes: int) -> Iterator[Chunk]:
    """The parts of a shard, in order."""
    size = _chunk_size(examples, chunk_bytes)
    for start in range(0, len(shard.numbers), size):
        numbers = shard.numbers[start : start + size]
        yield Chunk(source=shard.source, numbers=numbers, labels=examples.labels[numbers])


def chunk_count(shard: Shard, examples: Examples, chunk_bytes: int) -> int:
    """How many parts `chunks` makes."""
    return -(-len(shard.numbers) // _chunk_size(examples, chunk_bytes))


def _chunk_size(examples: Examples, chunk_bytes: int) -> int:
    return max(int(chunk_bytes / record_bytes(examples)), 1)


def record_bytes(examples: Examples) -> float:
    """The size of a record, on average."""
    return examples.encoded_bytes / max(len(examples.labels), 1) + RECORD_BYTES


def _cut(
    source: Source, numbers: NDArray[np.int64], fraction: float, salt: str, what: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What stays and what is held out of some examples of train."""
    train = source.splits["train"]
    names = [train.names[number] for number in numbers] if train.names else ()
    try:
        chosen = splits.held_out(train.labels[numbers], fraction=fraction, salt=salt, names=names)
    except ValueError as error:
        raise DataError(f"{what}: {error}") from error
    return numbers[~chosen], numbers[chosen]
