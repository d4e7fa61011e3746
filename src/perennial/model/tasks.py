"""What a task means for a model: one label an image (softmax), or any number of labels (sigmoid).

The shape of the labels says which: int64 [N], or 0 and 1 of any integer type [N, classes].
"""

from collections.abc import Callable

import numpy as np
import scipy
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.choices import Task


def activation(task: Task) -> Callable[[tf.Tensor], tf.Tensor]:
    """The function from logits to probabilities, both [N, classes]."""
    found: Callable[[tf.Tensor], tf.Tensor] = tf.sigmoid if task == "multilabel" else tf.nn.softmax
    return found


def probabilities(task: Task, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The probabilities of logits, both [N, classes]; with several labels, they do not add up to 1."""
    found: NDArray[np.float32] = (
        scipy.special.expit(logits) if task == "multilabel" else scipy.special.softmax(logits, axis=1)
    )
    return found


def cross_entropy(logits: NDArray[np.float64], labels: NDArray[np.integer]) -> NDArray[np.float64]:
    """The loss of each example in nats, [N]; of several labels, the mean over the classes."""
    with tf.device("CPU:0"):  # whichever device the model uses
        if labels.ndim == 1:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits).numpy()
        else:
            each = tf.nn.sigmoid_cross_entropy_with_logits(labels.astype(np.float64), logits)
            losses = each.numpy().mean(axis=1)
    return np.asarray(losses)


def right(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Of each example, whether the highest logit is its label's, or the share of labels right at 0.5: [n]."""
    if labels.shape.rank == 1:
        return tf.cast(tf.argmax(logits, axis=-1) == labels, tf.float32)
    return tf.reduce_mean(tf.cast((logits >= 0) == (labels > 0), tf.float32), axis=-1)
