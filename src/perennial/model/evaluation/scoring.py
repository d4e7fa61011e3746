"""Scores of logits, independent of the batch size: accuracy, loss and top-5 accuracy, or average precision."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.errors import QualityError
from perennial.model import tasks
from perennial.model.evaluation import average_precision

TOP = 5


class NonFinite(QualityError):
    """A weight or logit is NaN or infinite; its scores would look valid, since the argmax of NaN is 0."""


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """Labels and losses of examples, in their order."""

    labels: NDArray[Any]  # as in `records.pipeline.batches`
    losses: NDArray[np.float64]  # [N], cross-entropy in nats; of several labels, the mean over the classes

    def at(self, rows: NDArray[np.bool_]) -> Self:
        """The scores of some of the examples, mask [N]."""
        every = {name: each[rows] for name, each in vars(self).items() if isinstance(each, np.ndarray)}
        return replace(self, **every)

    @property
    def examples(self) -> int:
        """Number of examples."""
        return len(self.labels)

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats."""
        return float(self.losses.mean())


@dataclass(frozen=True, kw_only=True)
class ExampleScores(_Scored):
    """Predicted class, loss and top-5 hit of each example of one label: all arrays are [N]."""

    classes: int
    predicted: NDArray[np.int64]  # class of the highest logit, the first one on ties
    within_top: NDArray[np.bool_]  # whether fewer than TOP logits are higher than the label's

    @property
    def summary(self) -> dict[str, float]:
        """The scores of an evaluation, by name."""
        return {"accuracy": self.accuracy, "loss": self.loss, "recall_at_5": self.recall_at_5}

    @property
    def accuracy(self) -> float:
        """Share of examples whose highest logit is their label's, 0..1."""
        return float(np.mean(self.predicted == self.labels))

    @property
    def recall_at_5(self) -> float:
        """Top-5 accuracy, 0..1: logits that tie at the fifth place all count, as in TensorFlow's `in_top_k`."""
        return float(self.within_top.mean())


@dataclass(frozen=True, kw_only=True)
class MultilabelScores(_Scored):
    """Probabilities and losses of examples with any number of labels."""

    probabilities: NDArray[np.float32]  # [N, classes]

    @property
    def summary(self) -> dict[str, float]:
        """The scores of an evaluation, by name."""
        found = average_precision.per_class(self.labels, self.probabilities)
        return {"map": average_precision.macro(found), "loss": self.loss}


Scores = ExampleScores | MultilabelScores


def score(
    batches: Iterable[tuple[NDArray[np.float32], NDArray[Any]]], *, classes: int, examples: int
) -> Scores:
    """Score batches of (logits [N, classes], labels [N], or [N, classes] of 0 and 1)."""
    scored: list[tuple[NDArray[Any], ...]] = []
    found = 0
    for logits, labels in batches:
        _require_finite(logits, first=found)
        losses = tasks.cross_entropy(logits.astype(np.float64), labels)
        if labels.ndim == 2:
            scored.append((labels, tasks.probabilities("multilabel", logits), losses))
        else:
            scored.append((labels, logits.argmax(axis=1), losses, _within_top(logits, labels)))
        found += len(labels)
    if found != examples or not examples:
        raise QualityError(f"scored {found} examples, expected the {examples} of the manifest")
    every, second, losses, *within = map(np.concatenate, zip(*scored, strict=True))
    if not within:
        return MultilabelScores(labels=every, probabilities=second, losses=losses)
    return ExampleScores(classes=classes, labels=every, predicted=second, losses=losses, within_top=within[0])


def _require_finite(logits: NDArray[np.float32], *, first: int) -> None:
    """Check the logits of a batch from the index `first` on."""
    finite = np.isfinite(logits).all(axis=1)
    if not finite.all():
        raise NonFinite(
            f"the model's logits are not finite, first those of example {first + int(np.argmin(finite))}; its "
            "scores would mean nothing; nothing was written; train it again with a lower train.learning_rate"
        )


def _within_top(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    with tf.device("CPU:0"):  # whichever device the model uses
        found: NDArray[np.bool_] = tf.math.in_top_k(labels, logits, TOP).numpy()
    return found
