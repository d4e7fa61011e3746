"""Lists of class names beside TFRecords: ids in the list decide, as in slim's `0:zero`."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from perennial.datasets.dataset import Examples
from perennial.errors import DataError

LABELS = ("labels.txt", "label.labels.txt")  # slim's, with `0:zero` in each line, and TensorFlow Datasets'


def read(folder: Path, splits: Iterable[Examples]) -> tuple[str, ...]:
    """The class names from the list of labels; where there is none, the labels themselves.

    Raises:
        DataError: the list has gaps, doubles or lines without an id, or ends before the highest label.
    """
    labels = max(int(examples.labels.max(initial=0)) for examples in splits) + 1
    file = next((folder / name for name in LABELS if (folder / name).is_file()), None)
    if file is None:
        return tuple(str(label) for label in range(labels))
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not a list of labels: {error}") from error
    names = _by_id(lines, file) if file.name == LABELS[0] else tuple(lines)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{file} names the class {twice!r} twice")
    if len(names) < labels:
        raise DataError(f"{file} lists {len(names)} classes, but there are labels up to {labels - 1}")
    return names


def _by_id(lines: Sequence[str], file: Path) -> tuple[str, ...]:
    """The names in the order of their ids; lines without any ids are in that order already."""
    parts = [re.fullmatch(r"([0-9]+):(.*)", line) for line in lines]
    if not any(parts):
        return tuple(lines)
    names: dict[int, str] = {}
    for line, part in zip(lines, parts, strict=True):
        if part is None or not part[2].strip():
            raise DataError(f"{file}: the line {line!r} is not an id and a name, as in 0:cat")
        if int(part[1]) in names:
            raise DataError(f"{file}: the id {int(part[1])} is given twice")
        names[int(part[1])] = part[2]
    if gap := sorted(set(range(len(names))) - set(names)):
        raise DataError(
            f"{file}: no class has the id {gap[0]}, but one has {max(names)}; ids run from 0 without a gap"
            + ("; add a line such as 0:background if no example has that label" if gap[0] == 0 else "")
        )
    return tuple(names[number] for number in range(len(names)))
