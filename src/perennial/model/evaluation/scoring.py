"""Scores of logits: accuracy, loss and top-5 accuracy, independent of the batch size."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.errors import QualityError

TOP = 5


class NonFinite(QualityError):
    """A weight or logit is NaN or infinite; its scores would look valid, since the argmax of NaN is 0."""


@dataclass(frozen=True, kw_only=True)
class ExampleScores:
    """Predicted class, loss and top-5 hit of each example, in their order: all arrays are [N]."""

    classes: int
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]  # class of the highest logit, the first one on ties
    losses: NDArray[np.float64]  # cross-entropy in nats
    within_top: NDArray[np.bool_]  # whether fewer than TOP logits are higher than the label's

    @property
    def examples(self) -> int:
        """Number of examples."""
        return len(self.labels)

    @property
    def accuracy(self) -> float:
        """Share of examples whose highest logit is their label's, 0..1."""
        return float(np.mean(self.predicted == self.labels))

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats."""
        return float(self.losses.mean())

    @property
    def recall_at_5(self) -> float:
        """Top-5 accuracy, 0..1: logits that tie at the fifth place all count, as in TensorFlow's `in_top_k`."""
        return float(self.within_top.mean())


def score(
    batches: Iterable[tuple[NDArray[np.float32], NDArray[np.int64]]], *, classes: int, examples: int
) -> ExampleScores:
    """Score batches of (logits [N, classes], labels [N])."""
    scored = []
    found = 0
    for logits, labels in batches:
        scored.append(_scored(logits, labels, first=found))
        found += len(labels)
    if found != examples or not examples:
        raise QualityError(f"scored {found} examples, expected the {examples} of the manifest")
    every, predicted, losses, within_top = map(np.concatenate, zip(*scored, strict=True))
    return ExampleScores(
        classes=classes, labels=every, predicted=predicted, losses=losses, within_top=within_top
    )


def _scored(
    logits: NDArray[np.float32], labels: NDArray[np.int64], *, first: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """Labels, predicted classes, losses and top-5 hits of a batch from the index `first` on."""
    finite = np.isfinite(logits).all(axis=1)
    if not finite.all():
        raise NonFinite(
            f"the model's logits are not finite, first those of example {first + int(np.argmin(finite))}; its "
            "scores would mean nothing; nothing was written; train it again with a lower train.learning_rate"
        )
    with tf.device("CPU:0"):  # in double precision, whichever device the model uses
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits.astype(np.float64)).numpy()
        within_top = tf.math.in_top_k(labels, logits, TOP).numpy()
    return labels, logits.argmax(axis=1), losses, within_top
