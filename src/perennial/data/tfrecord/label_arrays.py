"""Arrays of labels, whose shape is the task: int64 [N], one each; or uint8 [N, classes] of 0 and 1, several."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Label = int | tuple[int, ...]  # of an example: its only label, or all in ascending order
LabelArray = NDArray[Any]


def of_lists(lists: Sequence[Sequence[int]], columns: int) -> LabelArray:
    """The array of several labels, each below `columns`; with 0, that of the only label of each list."""
    if not columns:
        return np.array([label for (label,) in lists], np.int64)
    found = np.zeros((len(lists), columns), np.uint8)
    rows = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    found[rows, np.array([label for each in lists for label in each], np.int64)] = 1
    return found


def each(labels: LabelArray) -> list[Label]:
    """The label or labels of each example."""
    if labels.ndim == 1:
        found: list[Label] = labels.tolist()
        return found
    return [tuple(np.flatnonzero(row).tolist()) for row in labels]


def packed(labels: LabelArray, classes: int) -> LabelArray:
    """A smaller array with a row for each example; of several labels, the bits of `of_lists`."""
    smaller = np.min_scalar_type(max(classes - 1, 0))
    return labels.astype(smaller) if labels.ndim == 1 else np.packbits(labels, axis=1)


def per_class(labels: LabelArray, classes: int) -> NDArray[np.int64]:
    """The number of examples that have each label."""
    found: NDArray[np.int64] = (
        np.bincount(labels, minlength=classes) if labels.ndim == 1 else labels.sum(axis=0, dtype=np.int64)
    )
    return found


def unlabelled(labels: LabelArray) -> int:
    """The number of examples without any label."""
    return 0 if labels.ndim == 1 else int((~labels.any(axis=1)).sum())
