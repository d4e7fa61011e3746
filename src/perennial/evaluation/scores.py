"""Exact scores from logits, whatever the batch size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perennial.errors import QualityError

TOP = 5


@dataclass
class Scores:
    """Sums over the examples seen so far.

    `add` raises QualityError when a logit is not finite: the argmax of NaN is 0, which looks like a score.
    """

    classes: int
    actual: list[NDArray[np.int64]] = field(default_factory=list)
    predicted: list[NDArray[np.int64]] = field(default_factory=list)
    loss_sum: float = 0.0
    within_top: int = 0

    def add(self, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Adds examples: logits [N, classes], labels [N]."""
        if not np.isfinite(logits).all():
            raise QualityError(
                f"the model gives logits that are not finite (example {self.examples} and those after it); "
                "its accuracy would mean nothing; lower train.learning_rate"
            )
        exact = logits.astype(np.float64)
        shifted = exact - exact.max(axis=1, keepdims=True)
        of_label = shifted[np.arange(len(labels)), labels]
        self.loss_sum += float((np.log(np.exp(shifted).sum(axis=1)) - of_label).sum())
        self.within_top += int(((shifted > of_label[:, None]).sum(axis=1) < TOP).sum())
        self.actual.append(labels)
        self.predicted.append(logits.argmax(axis=1))

    @property
    def examples(self) -> int:
        """How many were added."""
        return sum(map(len, self.actual))

    @property
    def accuracy(self) -> float:
        """Share of examples whose highest logit is their label's, 0..1."""
        return float(np.trace(self.confusion())) / self.examples

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats."""
        return self.loss_sum / self.examples

    @property
    def recall_at_5(self) -> float:
        """Share of examples whose label is among the five highest logits, 0..1."""
        return self.within_top / self.examples

    def confusion(self) -> NDArray[np.int64]:
        """Examples by label and prediction, [classes, classes]."""
        counts = np.zeros((self.classes, self.classes), np.int64)
        np.add.at(counts, (np.concatenate(self.actual), np.concatenate(self.predicted)), 1)
        return counts

    def per_class(self, names: Sequence[str]) -> dict[str, dict[str, float | int | None]]:
        """For each class its examples, recall and precision; None where there is nothing to divide by."""
        counts = self.confusion()
        return {
            name: {
                "examples": int(counts[label].sum()),
                "recall": _share(counts[label, label], counts[label].sum()),
                "precision": _share(counts[label, label], counts[:, label].sum()),
            }
            for label, name in enumerate(names)
        }


def score(
    batches: Iterable[tuple[NDArray[np.float32], NDArray[np.int64]]], *, classes: int, examples: int
) -> Scores:
    """The scores of batches of (logits, labels).

    Raises:
        QualityError: a logit is not finite, or other than `examples` examples came.
    """
    scores = Scores(classes)
    for logits, labels in batches:
        scores.add(logits, labels)
    if scores.examples != examples or not examples:
        raise QualityError(f"scored {scores.examples} examples, expected the {examples} of the manifest")
    return scores


def _share(part: np.int64, whole: np.int64) -> float | None:
    return float(part / whole) if whole else None
