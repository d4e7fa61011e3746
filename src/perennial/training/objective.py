"""What a training makes small: the losses of the examples and the penalties of the weights."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from perennial import models
from perennial.config.training import TrainConfig
from perennial.models.architecture import Architecture
from perennial.training import layers, losses


class Objective:
    """The objective of a model, as configured; the penalties are of the weights that are trainable now."""

    def __init__(
        self,
        model: keras.Model,
        architecture: Architecture,
        config: TrainConfig,
        class_weights: Sequence[float] | None,
    ) -> None:
        self._config, self._class_weights = config, class_weights
        self._classes = models.logits(model.output).shape[-1]
        decay = config.weight_decay
        if decay is None:  # AdamW has a decay of its own, in place of L2
            decay = 0.0 if config.optimizer == "adamw" else architecture.weight_decay
        self._weight_decay = decay
        self._decayed = layers.weights_matching(model, architecture.decayed) if decay else []

    def summed_loss(self, outputs: tf.Tensor | dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        """The sum of the examples' losses, with the auxiliary classifier's where there is one."""
        loss = self._summed(models.logits(outputs), labels)
        auxiliary = models.auxiliary_logits(outputs)
        if auxiliary is not None:
            loss += self._config.aux_loss_weight * self._summed(auxiliary, labels)
        return loss

    def penalty(self) -> tf.Tensor:
        """Of all weights together."""
        return losses.l2(self._decayed, self._weight_decay) if self._decayed else tf.constant(0.0)

    def _summed(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        each = losses.cross_entropy(
            logits,
            labels,
            classes=self._classes,
            label_smoothing=self._config.label_smoothing,
            class_weights=self._class_weights,
        )
        return tf.reduce_sum(each)
