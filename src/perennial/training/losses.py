"""What a training makes small: pure functions of logits, labels and weights."""

from collections.abc import Sequence
from typing import Literal

import keras
import tensorflow as tf

from perennial.errors import ConfigError


def cross_entropy(
    logits: tf.Tensor,
    labels: tf.Tensor,
    *,
    classes: int,
    label_smoothing: float,
    class_weights: Sequence[float] | None,
) -> tf.Tensor:
    """The loss of each example, float32 [n], of logits [n, classes] of any precision and labels int64 [n].

    Smoothing gives each class an equal part of `label_smoothing` (Szegedy et al. 2015, as tf.losses does).
    """
    logits = tf.cast(logits, tf.float32)
    if label_smoothing:
        rest = label_smoothing / classes
        targets = tf.one_hot(labels, classes, on_value=1 - label_smoothing + rest, off_value=rest)
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    if class_weights is not None:
        losses *= tf.gather(tf.constant(class_weights, tf.float32), labels)
    return losses


def l2(weights: Sequence[keras.Variable], weight_decay: float) -> tf.Tensor:
    """`weight_decay` times half the sum of squares of all weights, float32."""
    return weight_decay * tf.add_n([tf.nn.l2_loss(weight.value) for weight in weights])


def class_weights(
    chosen: Literal["balanced"] | Sequence[float] | None, per_class: Sequence[int]
) -> list[float] | None:
    """What the loss of an example of each class is multiplied by; null where it is 1 for all.

    Balanced is scikit-learn's: the weights of all examples add up to their number, those of each class to an
    equal part of it. `per_class` are the training examples; a class without any has weight 0.

    Raises:
        ConfigError: the numbers chosen are not one a class.
    """
    if chosen is None:
        return None
    if chosen == "balanced":
        part = sum(per_class) / sum(count > 0 for count in per_class)
        return [part / count if count else 0.0 for count in per_class]
    if len(chosen) != len(per_class):
        raise ConfigError(
            f"train.class_weights must have one number a class, {len(per_class)}, got {len(chosen)}"
        )
    return [float(weight) for weight in chosen]
