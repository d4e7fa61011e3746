"""Confusion matrix and reliability of predictions, and their CSV files; no TensorFlow."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

MAX_ROWS = 30  # of a readable confusion matrix
NONE = "(none)"  # no label


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Examples by the probability of their predicted class, in bins of equal width: arrays [bins].

    A bin includes its lower end; the last one both. Means of empty bins are NaN.
    """

    examples: NDArray[np.int64]
    confidence: NDArray[np.float64]  # mean probability, 0..1
    accuracy: NDArray[np.float64]  # share of correct predictions, 0..1

    @property
    def ece(self) -> float:
        """Expected calibration error: mean |accuracy - confidence|, weighted by examples, 0..1.

        Source: Guo et al., On Calibration of Modern Neural Networks, 2017.
        """
        distances = np.abs(self.accuracy - self.confidence)
        return float(np.nansum(distances * self.examples) / self.examples.sum())


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A confusion matrix small enough to read.

    Up to 30 classes have a row each. With more, the 29 classes with the most errors have a row each, in the
    order of the classes, and all others share the last one.
    """

    counts: NDArray[np.int64]  # examples by true and predicted class, [rows, rows]
    names: tuple[str, ...]  # [rows]
    row_of: NDArray[np.int64]  # row of each class, [classes]


def reliability(confidence: NDArray[np.float32], correct: NDArray[np.bool_], *, bins: int) -> Reliability:
    """Reliability of predictions: probabilities of the predicted classes [N], and which are correct [N]."""
    # Rounding can make probabilities slightly larger than 1.
    probabilities = np.minimum(confidence.astype(np.float64), 1)
    numbers = np.digitize(probabilities, np.linspace(0, 1, bins + 1)[1:-1])
    examples = np.bincount(numbers, minlength=bins)
    with np.errstate(invalid="ignore"):  # of empty bins
        means = [np.bincount(numbers, each, minlength=bins) / examples for each in (probabilities, correct)]
    return Reliability(examples=examples, confidence=means[0], accuracy=means[1])


def confusion(
    labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: int
) -> "scipy.sparse.coo_array":
    """Examples by label and prediction, [classes, classes]; sparse, its entries in row-major order."""
    ones = np.ones(len(labels), np.int64)
    # A dense matrix of 21,000 classes would take 3.5 GB.
    counts = scipy.sparse.coo_array((ones, (labels, predicted)), shape=(classes, classes)).tocsr()
    counts.sort_indices()
    return counts.tocoo()


def matrix(counts: "scipy.sparse.coo_array", names: Sequence[str]) -> Matrix:
    """The confusion matrix of the classes with the most errors; all others share a row."""
    row_of, shown = np.arange(len(names)), list(names)
    if len(names) > MAX_ROWS:
        mistakes = counts.sum(axis=0) + counts.sum(axis=1) - 2 * counts.diagonal()
        own = np.sort(np.argsort(-mistakes, kind="stable")[: MAX_ROWS - 1])
        row_of = np.full(len(names), MAX_ROWS - 1)
        row_of[own] = np.arange(MAX_ROWS - 1)
        shown = [*(names[label] for label in own), f"({len(names) - MAX_ROWS + 1} others)"]
    grouped = np.zeros((len(shown), len(shown)), np.int64)
    np.add.at(grouped, (row_of[counts.row], row_of[counts.col]), counts.data)
    return Matrix(counts=grouped, names=tuple(shown), row_of=row_of)


def confusion_csv(labels: NDArray[np.int64], predicted: NDArray[np.int64], rows: Matrix) -> bytes:
    """CSV for DVC's confusion template: actual and predicted row of the matrix, one line per example."""
    pairs = zip(rows.row_of[labels].tolist(), rows.row_of[predicted].tolist(), strict=True)
    return _csv(("actual", "predicted"), ((rows.names[a], rows.names[p]) for a, p in pairs))


def co_confusion_csv(labels: NDArray[np.int8], predicted: NDArray[np.int8], names: Sequence[str]) -> bytes:
    """The CSV of `confusion_csv` for several labels an image, both arrays [N, classes] of 0 and 1.

    A line per label that is right, and per pair of a missed label and an added one in an image; `(none)` stands
    for the other side where labels were only missed or only added.
    """
    counts, shown = co_confusion(labels, predicted), (*names, NONE)
    pairs = np.argwhere(counts)
    lines = np.repeat(pairs, counts[tuple(pairs.T)], axis=0).tolist()
    return _csv(("actual", "predicted"), ((shown[a], shown[p]) for a, p in lines))


def co_confusion(labels: NDArray[np.int8], predicted: NDArray[np.int8]) -> NDArray[np.int64]:
    """Pairs of missed and added labels, [classes + 1, classes + 1]: right ones on the diagonal, none last."""
    wrong = (labels > predicted, predicted > labels)
    missed, added = (
        np.column_stack([mask, mask.any(axis=1) < other.any(axis=1)]).astype(np.float64)
        for mask, other in (wrong, wrong[::-1])
    )
    counts: NDArray[np.int64] = (missed.T @ added).astype(np.int64)  # exact below 2^53
    counts[np.diag_indices(len(counts) - 1)] += (labels & predicted).sum(axis=0)
    return counts


def reliability_csv(found: Reliability) -> bytes:
    """CSV with one line per non-empty bin, numbered from 1."""
    rows = zip(found.confidence, found.accuracy, found.examples, strict=True)
    numbered = ((number, *row) for number, row in enumerate(rows, 1) if row[2])
    return _csv(("bin", "confidence", "accuracy", "examples"), numbered)


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()
