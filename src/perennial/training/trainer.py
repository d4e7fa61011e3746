"""A model with its optimizers and the compiled functions that update it."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial import models
from perennial.config.training import TrainConfig
from perennial.models.architecture import Architecture
from perennial.models.dropout import randomness
from perennial.preprocessing import Pixels
from perennial.training import layers, optimizers, schedules
from perennial.training.averages import Averages
from perennial.training.input import Batch
from perennial.training.objective import Objective
from perennial.training.stopping import Length

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What some updates gave, one row each."""

    loss: NDArray[np.float32]  # mean cross-entropy of the batch, weighted and smoothed as asked for
    total_loss: NDArray[np.float32]  # with the penalties, what the gradient is of
    sums: NDArray[np.float32]  # of each tensor of Trainer.watched; not finite where the tensor is not
    examples: int
    waited_s: float  # for input


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the training: which weights change, and how."""

    trainable: tuple[str, ...]  # patterns of layers; empty: all
    optimizer: keras.optimizers.Optimizer
    rate: Callable[[int], float]  # learning rate of an update, counted from the phase's first
    first_step: int


class Trainer:
    """Updates a model's weights, step by step; has no random state of its own."""

    def __init__(
        self,
        architecture: Architecture,
        build: Callable[[], keras.Model],
        pixels: Pixels,
        config: TrainConfig,
        strategy: tf.distribute.Strategy,
        *,
        length: Length,
        examples: int,
        class_weights: Sequence[float] | None,
    ) -> None:
        self.strategy, self.pixels, self._config = strategy, pixels, config
        with strategy.scope():
            self.model = build()
            layers.synchronize(self.model, synced=config.batch_norm == "synced")
            self.phases = self._phases(architecture, length=length, examples=examples)
            trained = [phase.trainable for phase in self.phases]
            layers.set_trainable(self.model, () if () in trained else [one for each in trained for one in each])
            self.averages = Averages(self.model, config.averages)
        self._objective = Objective(self.model, architecture, config, class_weights)
        self._compiled: dict[int, Callable[..., tuple[tf.Tensor, ...]]] = {}

    def _phases(self, architecture: Architecture, *, length: Length, examples: int) -> list[Phase]:
        """The head alone for the first updates, where that is asked for, then what `trainable` names."""
        config, head = self._config, self._config.head
        left = max(length.steps - head.steps, 1)
        schedule = schedules.build(config, examples=examples, batch_size=config.batch_size, steps=left)
        plans = [(architecture.head, head.learning_rate, 0), (tuple(config.trainable), schedule, head.steps)]
        phases = []
        if head.steps >= length.steps:
            log.warning(
                "train.head.steps %d leaves none of %d updates for more than the head", head.steps, length.steps
            )
            plans.pop()
        for trainable, learning_rate, first_step in plans if head.steps else plans[1:]:
            layers.set_trainable(self.model, trainable)
            optimizer = optimizers.build(config, learning_rate)
            optimizer.build(self.model.trainable_variables)
            rate = schedules.rate(learning_rate)
            phases.append(Phase(trainable=trainable, optimizer=optimizer, rate=rate, first_step=first_step))
        return phases

    def phase(self, step: int) -> Phase:
        """The phase of the update that follows `step` others."""
        return next(phase for phase in reversed(self.phases) if step >= phase.first_step)

    def learning_rate(self, step: int) -> float:
        """The learning rate of the update that follows `step` others."""
        phase = self.phase(step)
        return phase.rate(step - phase.first_step)

    @property
    def state(self) -> dict[str, list[tf.Variable]]:
        """Every variable that the next update depends on."""
        return {
            "weights": self.model.weights,
            "averages": self.averages.variables,
            "optimizers": [slot for phase in self.phases for slot in phase.optimizer.variables],
        }

    @property
    def watched(self) -> list[str]:
        """The names of what Steps.sums are of, for the phase that was run last."""
        weights = [f"gradient of {weight.path}" for weight in self.model.trainable_variables]
        return ["logits", "loss", *weights]

    def may_overflow(self, step: int) -> bool:
        """Whether that update is skipped if its gradients are not finite, while the loss scale is found.

        Below a scale of 1 they are not finite by themselves, and would be skipped for ever.
        """
        optimizer = self.phase(step).optimizer
        return hasattr(optimizer, "dynamic_scale") and float(optimizer.dynamic_scale.numpy()) >= 1

    def is_compiled(self, step: int) -> bool:
        """Whether the update that follows `step` others needs no compiling first."""
        return self.phase(step).first_step in self._compiled

    def run(self, iterator: tf.data.Iterator, step: int, steps: int) -> Steps:
        """Updates the weights `steps` times, after `step` updates before; all of one phase."""
        phase = self.phase(step)
        if phase.first_step not in self._compiled:
            layers.set_trainable(self.model, phase.trainable)
            self._compiled[phase.first_step] = tf.function(self._loop(phase.optimizer), reduce_retracing=True)
        first, count = tf.constant(step, tf.int64), tf.constant(steps)
        rows, examples, waited_s = self._compiled[phase.first_step](iterator, first, count)
        table = rows.numpy()
        return Steps(
            loss=table[:, 0],
            total_loss=table[:, 1],
            sums=table[:, 2:],
            examples=int(examples),
            waited_s=float(waited_s),
        )

    def _loop(self, optimizer: keras.optimizers.Optimizer) -> Callable[..., tuple[tf.Tensor, ...]]:
        """Many updates in one call, so that Python is asked once for all of them."""

        def run(iterator: tf.data.Iterator, first: tf.Tensor, steps: tf.Tensor) -> tuple[tf.Tensor, ...]:
            rows = tf.TensorArray(tf.float32, size=steps, element_shape=(2 + len(self.watched),))
            seen, waited_s = tf.constant(0.0), tf.constant(0.0, tf.float64)
            for index in tf.range(steps):
                asked = self._now()
                batch = next(iterator)
                waited_s += self._now() - asked
                step = first + tf.cast(index, tf.int64)
                row, examples = self.strategy.run(self._update, args=(optimizer, batch, step))
                rows = rows.write(index, self.strategy.reduce("SUM", row, axis=None))
                seen += self.strategy.reduce("SUM", examples, axis=None)
                self.averages.update(step)
            return rows.stack(), seen, waited_s

        return run

    def _now(self) -> tf.Tensor:
        """Seconds of some clock, float64; TensorFlow's own is refused where operations are deterministic."""
        if not self._config.deterministic:
            return tf.timestamp()
        return tf.ensure_shape(tf.numpy_function(time.monotonic, [], tf.float64), ())

    def _update(
        self, optimizer: keras.optimizers.Optimizer, batch: Batch, step: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """One update on this replica's part of the batch: its shares of the losses, its examples."""
        replica, replicas = tf.distribute.get_replica_context(), self.strategy.num_replicas_in_sync
        own_examples = tf.cast(tf.shape(batch.labels)[0], tf.float32)
        examples = replica.all_reduce("SUM", own_examples) if replicas > 1 else own_examples
        computed = tf.function(self._gradients, jit_compile=True) if self._config.xla else self._gradients
        row, gradients = computed(optimizer, batch, step, examples)
        weights = self.model.trainable_variables
        optimizers.apply(optimizer, gradients, weights, clip_norm=self._config.clip_norm)
        return row, own_examples

    def _gradients(
        self,
        optimizer: keras.optimizers.Optimizer,
        batch: Batch,
        step: tf.Tensor,
        examples: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The row of Steps that this replica adds to, and the gradients of its share of the loss."""
        seed = tf.stack([tf.constant(self._config.seed, tf.uint32), tf.cast(step, tf.uint32)])
        images = self.pixels.training(batch.images, batch.keys) if self.pixels.same_size else batch.images
        with tf.GradientTape() as tape:
            with randomness(tf.bitcast(seed, tf.int32), batch.positions, self._config.batch_size):
                outputs = self.model(images, training=True)
            loss = self._objective.summed_loss(outputs, batch.labels) / examples
            total_loss = loss + self._objective.penalty() / self.strategy.num_replicas_in_sync
            scaled = optimizer.scale_loss(total_loss)
        gradients = tape.gradient(scaled, self.model.trainable_variables)
        logits = tf.reduce_sum(tf.cast(models.logits(outputs), tf.float32))
        sums = [logits, total_loss, *(tf.reduce_sum(each) for each in gradients)]
        return tf.stack([loss, total_loss, *sums]), gradients
