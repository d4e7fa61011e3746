"""The names of sharded TFRecord files: which split a file is of, and whether a set of shards is whole."""

import re
from collections.abc import Sequence
from pathlib import Path

from perennial.config.choices import Split
from perennial.errors import DataError

SPLITS: dict[str, Split] = {
    "train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"
}  # fmt: skip
SPLIT = re.compile(rf"(?:^|[^a-z])({'|'.join(SPLITS)})(?:[^a-z]|$)")
OF = re.compile(r"(\d+)-of-(\d+)")
SHOWN = 10  # names in a message


def split_of(name: str) -> Split | None:
    """The split that a file is of; None for one that is no TFRecord file of any."""
    found = SPLIT.search(name.lower())
    return SPLITS[found[1]] if found and (".tfrecord" in name or "-of-" in name) else None


def check_complete(shards: Sequence[Path]) -> None:
    """Refuses shards of which some are missing: each names how many there are.

    Raises:
        DataError: one is missing, or they are of several sets.
    """
    names = {file.name for file in shards}
    if len({found[2] for name in names if (found := OF.search(name))}) > 1:
        raise DataError(
            f"{shards[0].parent} holds shards of several sets of one split: {', '.join(sorted(names)[:SHOWN])}"
        )
    for name in sorted(names):
        if (found := OF.search(name)) is None:
            continue
        for number in range(int(found[2])):
            other = f"{name[: found.start(1)]}{number:0{len(found[1])}d}{name[found.end(1) :]}"
            if other not in names:
                raise DataError(f"{shards[0].parent} holds {name} but not {other}")
