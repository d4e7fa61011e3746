"""The names of sharded TFRecord files: which split a file is of, and whether a set of shards is whole."""

import re
from collections.abc import Sequence
from pathlib import Path

from perennial.config.choices import Split
from perennial.errors import DataError

SPLITS: dict[str, Split] = {
    "train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"
}  # fmt: skip
ENDING = re.compile(r"\.tfrecords?\b")
OF = re.compile(r"(\d+)-of-(\d+)")
SHOWN = 10  # names in a message


def split_of(name: str) -> Split | None:
    """The split that ends a file's name; None for a file that is not a TFRecord file of a split.

    Endings and numbers do not count: `train_signs_test.tfrecord-00000-of-00001` is of the test split.

    Raises:
        DataError: a split is named, but not by the last word.
    """
    lower = name.lower()
    if not ENDING.search(lower) and not OF.search(lower):
        return None
    fields = re.findall(r"[^\W\d_][^\W_]*", OF.sub("", ENDING.sub("", lower)))
    if fields and fields[-1] in SPLITS:
        return SPLITS[fields[-1]]
    if named := [field for field in fields if field in SPLITS]:
        raise DataError(
            f"{name!r}: the split is ambiguous; it is the last word of a name, as in own_{named[0]}.tfrecord"
        )
    return None


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
