"""Loss functions: cross-entropies, weights of classes, the auxiliary classifier and the L2 penalty."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from perennial.base.config.training import TrainConfig
from perennial.base.errors import ConfigError
from perennial.model import models, tasks
from perennial.model.models.architecture import Architecture
from perennial.model.training.warm_start import weights_matching


class Losses(NamedTuple):
    """The parts of a loss, float32 scalars."""

    cross_entropy: tf.Tensor
    auxiliary: tf.Tensor  # `train.aux_loss_weight` times the cross-entropy of the auxiliary classifier
    penalty: tf.Tensor
    total: tf.Tensor


class Other(NamedTuple):
    """The partner images that those of a batch are mixed with."""

    labels: tf.Tensor  # as in `Batch`
    own: tf.Tensor  # weight of the image's own label
    answers: tf.Tensor | tuple[()] = ()  # as in `Batch`


class Objective:
    """The configured loss of a model; the L2 penalty also covers frozen weights, as in slim."""

    def __init__(
        self,
        model: keras.Model,
        architecture: Architecture,
        config: TrainConfig,
        class_weights: Sequence[float] | None,
    ) -> None:
        """`class_weights`: factor of each class; of several labels, of the loss where its label is there."""
        self._config, self._class_weights = config, class_weights
        self._classes = models.logits(model.output).shape[-1]
        decay = config.weight_decay
        if decay is None:  # AdamW has its own weight decay instead of L2
            decay = 0.0 if config.optimizer == "adamw" else architecture.weight_decay
        self._weight_decay = decay
        self._decayed = weights_matching(model, architecture.decayed) if decay else []
        self._varying, self._constant_penalty = self._decayed, 0.0

    def fix_frozen_penalty(self) -> None:
        """Compute the penalty of frozen weights once, for functions that are traced afterwards."""
        self._varying = [weight for weight in self._decayed if weight.trainable]
        frozen = [weight.numpy() for weight in self._decayed if not weight.trainable]
        self._constant_penalty = self._weight_decay / 2 * sum(float(np.vdot(each, each)) for each in frozen)

    def losses(
        self,
        outputs: tf.Tensor | dict[str, tf.Tensor],
        labels: tf.Tensor,
        examples: tf.Tensor | int,
        replicas: int = 1,
        answers: tf.Tensor | tuple[()] = (),
        other: Other | None = None,
    ) -> Losses:
        """One replica's part of the losses of a batch of `examples`; `other`: partners of mixed images."""
        summed = self._summed(models.logits(outputs), labels, answers, other)
        auxiliary = models.auxiliary_logits(outputs)
        summed_aux = tf.constant(0.0)
        if auxiliary is not None:
            summed_aux = self._config.aux_loss_weight * self._summed(auxiliary, labels, answers, other)
        penalty = l2(self._varying, self._weight_decay) if self._varying else tf.constant(0.0)
        if self._constant_penalty:
            penalty += self._constant_penalty
        penalty /= replicas
        total = (summed if auxiliary is None else summed + summed_aux) / examples + penalty
        return Losses(summed / examples, summed_aux / examples, penalty, total)

    def _summed(
        self, logits: tf.Tensor, labels: tf.Tensor, answers: tf.Tensor | tuple[()], other: Other | None
    ) -> tf.Tensor:
        own = self._each(logits, labels, answers)
        if other is None:
            return tf.reduce_sum(own)
        # The losses are linear in the targets, so this is the loss of mixed targets.
        return tf.reduce_sum(
            other.own * own + (1.0 - other.own) * self._each(logits, other.labels, other.answers)
        )

    def _each(self, logits: tf.Tensor, labels: tf.Tensor, answers: tf.Tensor | tuple[()]) -> tf.Tensor:
        config, weights = self._config, self._class_weights
        if labels.shape.rank == 2:
            losses = sigmoid_cross_entropy(
                logits, labels, label_smoothing=config.label_smoothing, positive_weights=weights
            )
        else:
            losses = cross_entropy(
                logits, labels, classes=self._classes, label_smoothing=config.label_smoothing,
                class_weights=weights,
            )  # fmt: skip
        if isinstance(answers, tuple):
            return losses
        several = labels.shape.rank == 2
        far = distance(logits, answers, temperature=config.teacher_temperature, several=several)
        far *= 1 + config.teacher_focus * tasks.right(answers, labels)
        return (1 - config.teacher_weight) * losses + config.teacher_weight * far


def cross_entropy(
    logits: tf.Tensor,
    labels: tf.Tensor,
    *,
    classes: int,
    label_smoothing: float,
    class_weights: Sequence[float] | None,
) -> tf.Tensor:
    """The cross-entropy of each example, float32 [n]; logits [n, classes] of any precision, labels int64 [n].

    Smoothing gives each class an equal part of `label_smoothing` (Szegedy et al. 2015, as in tf.losses).
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


def sigmoid_cross_entropy(
    logits: tf.Tensor, labels: tf.Tensor, *, label_smoothing: float, positive_weights: Sequence[float] | None
) -> tf.Tensor:
    """The mean cross-entropy of an example's labels, float32 [n]; logits and labels of 0 and 1: [n, classes].

    Smoothing moves targets towards 0.5 by this fraction, as `keras.losses.BinaryCrossentropy` does. A positive
    weight is the factor of the part with the target, as `pos_weight` of PyTorch's `BCEWithLogitsLoss`.
    """
    logits, targets = tf.cast(logits, tf.float32), tf.cast(labels, tf.float32)
    if label_smoothing:
        targets = targets * (1 - label_smoothing) + label_smoothing / 2
    if positive_weights is None:
        losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
    else:
        weights = tf.constant(positive_weights, tf.float32)
        losses = tf.nn.weighted_cross_entropy_with_logits(targets, logits, weights)
    return tf.reduce_mean(losses, axis=-1)


def distance(logits: tf.Tensor, answers: tf.Tensor, *, temperature: float, several: bool) -> tf.Tensor:
    """The distance of each example from a teacher's logits, in nats, float32 [n]; both [n, classes].

    The Kullback-Leibler divergence from the teacher's probabilities at this temperature, times its square, so
    that the gradients stay as large (Hinton et al. 2015); of `several` labels, the mean over the classes.
    """
    ours, theirs = tf.cast(logits, tf.float32) / temperature, answers / temperature
    if several:
        entropy, p = tf.nn.sigmoid_cross_entropy_with_logits, tf.sigmoid(theirs)
        return temperature**2 * tf.reduce_mean(entropy(p, ours) - entropy(p, theirs), axis=-1)
    entropy, p = tf.nn.softmax_cross_entropy_with_logits, tf.nn.softmax(theirs)
    return temperature**2 * (entropy(p, ours) - entropy(p, theirs))


def l2(weights: Sequence[keras.Variable], weight_decay: float) -> tf.Tensor:
    """`weight_decay` times half the sum of squares of all weights, float32."""
    return weight_decay * tf.add_n([tf.nn.l2_loss(weight.value) for weight in weights])


def class_weights(
    chosen: Literal["balanced"] | Sequence[float] | None, per_class: Sequence[int]
) -> list[float] | None:
    """The loss factor of each class; None if it is 1 for all.

    `balanced` is as in scikit-learn: all examples together have a weight equal to their number, and each class
    has an equal part of it. `per_class` counts the training examples; a class without any has weight 0.
    """
    if chosen == "balanced":
        part = sum(per_class) / sum(count > 0 for count in per_class)
        return [part / count if count else 0.0 for count in per_class]
    return _one_per_class("class_weights", chosen, len(per_class))


def positive_weights(
    chosen: Literal["balanced"] | Sequence[float] | None, per_class: Sequence[int], examples: int
) -> list[float] | None:
    """The factor of each label's loss where it is there; None if it is 1 for all.

    `balanced`: the training examples without the label by those with it (`per_class`, of all `examples`), so
    that both have an equal part of the loss; 1 where there are none of one kind.
    """
    if chosen == "balanced":
        return [(examples - count) / count if 0 < count < examples else 1.0 for count in per_class]
    return _one_per_class("positive_weights", chosen, len(per_class))


def _one_per_class(name: str, chosen: Sequence[float] | None, classes: int) -> list[float] | None:
    if chosen is not None and classes != len(chosen):
        raise ConfigError(f"train.{name} must have one number per class, {classes}, got {len(chosen)}")
    return None if chosen is None else [float(weight) for weight in chosen]
