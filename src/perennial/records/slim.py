"""TF-Slim's own file names, splits and shard counts, for programs that expect them.

Source: slim's datasets/download_and_convert_{mnist,cifar10,flowers}.py. There, flowers are shuffled in the
order of a folder, which differs between machines; here they are sorted first.
"""

import random

import numpy as np

from perennial.datasets.dataset import Source, Split
from perennial.errors import ConfigError, DataError
from perennial.records.plan import Shard

FLOWERS_VALIDATION = 350
FLOWERS_SHARDS = 5
FLOWERS_SEED = 0


def plan(dataset: str, source: Source) -> list[Shard]:
    """The shards that slim makes of a data set.

    Raises:
        ConfigError: slim has no such data set.
        DataError: there are too few photographs to hold slim's 350 out.
    """
    if dataset in {"mnist", "cifar10"}:
        return [
            Shard(
                name=f"{dataset}_{split}.tfrecord",
                split=split,
                source=split,
                numbers=np.arange(len(examples.labels)),
            )
            for split, examples in source.splits.items()
        ]
    if dataset == "flowers":
        return _flowers(source)
    raise ConfigError(f"dataset.layout: slim has no {dataset}; it knows mnist, cifar10 and flowers")


def _flowers(source: Source) -> list[Shard]:
    examples = source.splits["train"]
    order = sorted(range(len(examples.names)), key=examples.names.__getitem__)
    if len(order) <= FLOWERS_VALIDATION:
        raise DataError(
            f"slim's layout holds {FLOWERS_VALIDATION} photographs out for validation, "
            f"the archive has {len(order)}"
        )
    random.Random(FLOWERS_SEED).shuffle(order)  # noqa: S311 - slim's own split
    parts: dict[Split, list[int]] = {
        "train": order[FLOWERS_VALIDATION:],
        "validation": order[:FLOWERS_VALIDATION],
    }
    shards = []
    for split, numbers in parts.items():
        size = -(-len(numbers) // FLOWERS_SHARDS)
        shards += [
            Shard(
                name=f"flowers_{split}_{shard:05d}-of-{FLOWERS_SHARDS:05d}.tfrecord",
                split=split,
                source="train",
                numbers=np.array(numbers[shard * size : (shard + 1) * size]),
            )
            for shard in range(FLOWERS_SHARDS)
        ]
    return shards
