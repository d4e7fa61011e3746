"""What was understood of a folder of images, in lines that `start` prints and `download` logs."""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perennial.base.errors import listed
from perennial.data.datasets.own.split_folders import Layout

log = logging.getLogger(__name__)
SHOWN, CLASSES, EXAMPLES = 3, 20, 5


def lines(found: Layout) -> list[str]:
    """The classes and splits with their counts, examples, and what was left out."""
    items = [item for part in found.splits.values() for item in part]
    counts = Counter(item.label for item in items)
    classes = [f"{name} {counts[label]:,}" for label, name in enumerate(found.classes)]
    splits = ", ".join(f"{split} {len(part):,}" for split, part in found.splits.items())
    said = [
        f"{len(items):,} images, labels from {found.table or 'the class folders'}",
        f"classes: {listed(classes, CLASSES)}",
        f"splits: {splits}" if len(found.splits) > 1 else "splits: none, perennial makes them",
        *(f"  {each['file']} -> {each['class']}, {each['split']}" for each in examples(found)),
    ]
    if nested := [item.name for item in items if found.table is None and item.name.count("/") > 1]:
        shown = listed(map(repr, nested), SHOWN)
        said.append(f"{len(nested):,} images in folders below their class folder: {shown}")
    if found.unlabelled:
        cells = listed([f"{cell!r} {count:,}" for cell, count in found.unlabelled.items()], SHOWN)
        said.append(
            f"left out {sum(found.unlabelled.values()):,} unlabelled images, by their cells: {cells}; where "
            "such a word is a class, dataset.table.unlabelled: [] keeps it"
        )
    if found.unused:
        tables = listed(map(repr, found.unused), SHOWN)
        said.append(f"not used: {tables}; the class folders give the labels, and dataset.table names a table")
    if found.left_out:
        files = listed(map(repr, found.left_out), SHOWN)
        said.append(f"left out {len(found.left_out):,} files beside the images: {files}")
    return said


def examples(found: Layout) -> Sequence[dict[str, str]]:
    """Five images with their class and split, evenly spaced."""
    items = [(item, split) for split, part in found.splits.items() for item in part]
    step = max(len(items) / EXAMPLES, 1)
    chosen = [items[int(number * step)] for number in range(min(len(items), EXAMPLES))]
    return [
        {"file": item.member.name, "class": found.classes[item.label], "split": split} for item, split in chosen
    ]


def log_found(found: Layout, where: Path) -> None:
    """Log what was understood."""
    log.info("%s: %s", where, "\n".join(lines(found)))
