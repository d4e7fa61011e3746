"""The training step: forward pass, loss, gradients, optimizer and moving averages, compiled."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.config.training import AveragesConfig, TrainConfig
from perennial.base.errors import ConfigError, listed
from perennial.data.preprocessing import ImageSpec, mixing
from perennial.model import models, tasks
from perennial.model.models.architecture import Architecture
from perennial.model.models.layers import randomness
from perennial.model.training import optimizers, schedules, warm_start
from perennial.model.training.frozen_features import FrozenFeatures
from perennial.model.training.input import Batch, model_input
from perennial.model.training.losses import Objective, Other
from perennial.model.training.triggers import Length

log = logging.getLogger(__name__)
# Each step has one row: these, then the sums of logits, total loss and each gradient, which reveal NaN and
# infinity.
METRICS = ("loss", "aux_loss", "l2_loss", "total_loss", "train_accuracy")


@dataclass(frozen=True, kw_only=True)
class StepResults:
    """The results of several steps, one row per step."""

    metrics: NDArray[np.float32]  # [steps, METRICS], of the global batch
    sums: NDArray[np.float32]  # of each tensor in Trainer.checked; NaN or infinite if a value is
    examples: int
    waited_s: float  # time spent waiting for input


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the training: which weights it trains, and how."""

    trainable: tuple[str, ...]  # layer name patterns; empty: all layers
    optimizer: keras.optimizers.Optimizer  # has the learning rate or its schedule
    logged_rate: Callable[[int], float]  # by step, counted from the start of the phase
    first_step: int
    frozen: FrozenFeatures | None = None  # features that its steps take instead of images, if any


class Trainer:
    """A model, its optimizers and the compiled function that trains it. It has no random state."""

    def __init__(
        self,
        architecture: Architecture,
        build: Callable[[], keras.Model],
        pixels: ImageSpec,
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
            for layer in self.model._flatten_layers():  # noqa: SLF001 - also those of models inside
                if isinstance(layer, keras.layers.BatchNormalization):
                    layer.synchronized = config.batch_norm == "synced"
            self.phases = self._phases(architecture, length=length, examples=examples)
            trained = [phase.trainable for phase in self.phases]
            warm_start.set_trainable(self.model, () if () in trained else list(chain.from_iterable(trained)))
            self.averages = Averages(self.model, config.averages)
        self._objective = Objective(self.model, architecture, config, class_weights)
        self._compiled: dict[int, Callable[..., tuple[tf.Tensor, ...]]] = {}  # by first step of the phase

    def _phases(self, architecture: Architecture, *, length: Length, examples: int) -> list[Phase]:
        """The phase that trains only the head, if configured, then the phase of all layers in `trainable`."""
        config, head = self._config, self._config.head
        left = max(length.steps - head.steps, 1)
        schedule = schedules.build(config, examples=examples, batch_size=config.batch_size, steps=left)
        plans = [(architecture.head, head.learning_rate, 0), (tuple(config.trainable), schedule, head.steps)]
        phases = []
        if 0 < length.steps <= head.steps:
            log.warning("train.head.steps %d: all %d steps train the head alone", head.steps, length.steps)
            plans.pop()
        for trainable, learning_rate, first in plans if head.steps else plans[1:]:
            warm_start.set_trainable(self.model, trainable)
            factors: list[float] = []  # the phase of the head has one rate
            if first == head.steps:
                factors = optimizers.rate_factors(config, self.model, architecture.head)
            optimizer = optimizers.build(config, learning_rate, factors)
            optimizer.build(self.model.trainable_variables)
            rate = schedules.logged_rate(learning_rate)
            phases.append(Phase(trainable=trainable, optimizer=optimizer, logged_rate=rate, first_step=first))
        return phases

    def keep_features(self, choose: Callable[[keras.Model], FrozenFeatures | None]) -> None:
        """Train on features in each phase for which `choose` returns some; it gets the model of the phase."""
        phases = []
        for phase in self.phases:
            warm_start.set_trainable(self.model, phase.trainable)
            phases.append(replace(phase, frozen=choose(self.model)))
        self.phases = phases

    def phase(self, step: int) -> Phase:
        """The phase of the step that follows `step` completed ones."""
        return next(phase for phase in reversed(self.phases) if step >= phase.first_step)

    def logged_rate(self, step: int) -> float:
        """The learning rate, for the log, of the step that follows `step` completed ones."""
        phase = self.phase(step)
        return phase.logged_rate(step - phase.first_step)

    @property
    def variables(self) -> dict[str, list[tf.Variable]]:
        """All variables that the next step depends on, by group."""
        weights = {id(each) for each in self.model.weights}
        return {
            "weights": self.model.weights,
            # Of Keras' own dropout and noise, which a network of the project may have.
            "randomness": [each for each in self.model.variables if id(each) not in weights],
            "averages": self.averages.variables,
            "optimizers": [slot for phase in self.phases for slot in phase.optimizer.variables],
        }

    @property
    def checked(self) -> list[str]:
        """The names of the tensors in StepResults.sums, for the phase that ran last."""
        weights = [f"gradient of {weight.path}" for weight in self.model.trainable_variables]
        return ["logits", "loss", *weights]

    def may_overflow(self, step: int) -> bool:
        """Whether a step with gradients that are not finite is skipped; below 1, the scale is not the cause."""
        optimizer = self.phase(step).optimizer
        return hasattr(optimizer, "dynamic_scale") and float(optimizer.dynamic_scale.numpy()) >= 1

    def is_compiled(self, step: int) -> bool:
        """Whether the function for the next step is already compiled."""
        return self.phase(step).first_step in self._compiled

    def run(self, iterator: tf.data.Iterator, step: int, steps: int) -> StepResults:
        """Run `steps` steps of one phase after `step` completed ones in one call."""
        phase = self.phase(step)
        if phase.first_step not in self._compiled:
            warm_start.set_trainable(self.model, phase.trainable)
            self._objective.fix_frozen_penalty()
            compiled = tf.function(self._loop(phase), reduce_retracing=True, autograph=False)
            self._compiled[phase.first_step] = compiled
        run = self._compiled[phase.first_step]
        rows, examples, waited_s = run(iterator, tf.constant(step, tf.int64), tf.constant(steps))
        metrics, sums = np.split(rows.numpy(), [len(METRICS)], axis=1)
        return StepResults(metrics=metrics, sums=sums, examples=int(examples), waited_s=float(waited_s))

    def _loop(self, phase: Phase) -> Callable[..., tuple[tf.Tensor, ...]]:
        """A compiled function that runs many steps per call; AutoGraph would double the time of its start."""
        network = phase.frozen.rest if phase.frozen else self.model

        def run(iterator: tf.data.Iterator, first: tf.Tensor, steps: tf.Tensor) -> tuple[tf.Tensor, ...]:
            width = len(METRICS) + len(self.checked)
            rows = tf.TensorArray(tf.float32, size=steps, element_shape=(width,))

            def one(
                index: tf.Tensor, rows: tf.TensorArray, seen: tf.Tensor, waited_s: tf.Tensor
            ) -> tuple[object, ...]:
                began = self._now()
                batch = next(iterator)
                waited_s += self._now() - began
                step = first + tf.cast(index, tf.int64)
                row, examples = self.strategy.run(self._step, args=(phase, network, batch, step))
                rows = rows.write(index, self.strategy.reduce("SUM", row, axis=None))
                seen += self.strategy.reduce("SUM", examples, axis=None)
                self.averages.update(step)
                return index + 1, rows, seen, waited_s

            none = tf.constant(0), rows, tf.constant(0.0), tf.constant(0.0, tf.float64)
            _, rows, seen, waited_s = tf.while_loop(lambda index, *_: index < steps, one, none)
            return rows.stack(), seen, waited_s

        return run

    def _now(self) -> tf.Tensor:
        """Clock time in seconds, float64; TensorFlow's own op cannot be deterministic."""
        if not self._config.deterministic:
            return tf.timestamp()
        return tf.ensure_shape(tf.numpy_function(time.monotonic, [], tf.float64), ())

    def _step(
        self, phase: Phase, network: keras.Model, batch: Batch, step: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Run one step on this replica's slice; returns its share of the row and its number of examples."""
        replica, replicas = tf.distribute.get_replica_context(), self.strategy.num_replicas_in_sync
        own_examples = tf.cast(tf.shape(batch.labels)[0], tf.float32)
        examples = replica.all_reduce("SUM", own_examples) if replicas > 1 else own_examples
        computed = self._gradients
        if self._config.xla:
            computed = tf.function(self._gradients, jit_compile=True, autograph=False)
        other = self._partners(batch) if self._config.augmentation.mixes else None
        row, gradients = computed(phase, network, batch, other, step, examples)
        trained, most = self.model.trainable_variables, self._config.clip_norm
        optimizers.apply(phase.optimizer, gradients, trained, clip_norm=most)
        return row, own_examples

    def _partners(self, batch: Batch) -> Batch:
        """The examples that this replica's examples are mixed with, which may be on other devices."""
        everyone, replicas = batch, self.strategy.num_replicas_in_sync
        if replicas > 1:
            # A device has its part of a batch, or the whole of one with fewer examples than there are devices.
            most = max(self._config.batch_size // replicas, replicas - 1)
            numbered = batch._replace(positions=batch.positions + 1)
            everyone = tf.nest.map_structure(lambda part: _of_all_devices(part, most), numbered)
            everyone = everyone._replace(positions=everyone.positions - 1)  # -1: filled up
        chosen = mixing.partners(everyone.positions, batch.positions)
        found: Batch = tf.nest.map_structure(lambda part: tf.gather(part, chosen), everyone)
        return found

    def _gradients(
        self,
        phase: Phase,
        network: keras.Model,
        batch: Batch,
        partners: Batch | None,
        step: tf.Tensor,
        examples: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """This replica's share of the row, and the gradients of its share of the loss."""
        seed = tf.stack([tf.constant(self._config.seed, tf.uint32), tf.cast(step, tf.uint32)])
        inputs, other, augmentation = batch.images, None, self._config.augmentation
        if phase.frozen is None:
            inputs = model_input(batch, self.pixels, augmentation)
        if partners is not None:
            others = model_input(partners, self.pixels, augmentation)
            alphas = {"mixup": augmentation.mixup, "cutmix": augmentation.cutmix}
            inputs, own = mixing.mix(inputs, others, batch.keys, **alphas)
            other = Other(partners.labels, own, partners.answers)
        with tf.GradientTape() as tape:
            with randomness(tf.bitcast(seed, tf.int32), batch.positions, self._config.batch_size):
                outputs = network(inputs, training=True)
            replicas = self.strategy.num_replicas_in_sync
            losses = self._objective.losses(outputs, batch.labels, examples, replicas, batch.answers, other)
            scaled = phase.optimizer.scale_loss(losses.total)
        gradients = tape.gradient(scaled, weights := self.model.trainable_variables)
        if cut_off := [weight.path for weight, found in zip(weights, gradients, strict=True) if found is None]:
            raise ConfigError(
                f"no gradient reaches {listed(cut_off, 3)}; leave it out of train.trainable, or correct the "
                "network, if it rounds, takes an argmax or stops the gradient after it"
            )
        logits = tf.cast(models.logits(outputs), tf.float32)
        metrics = [*losses, tf.reduce_sum(tasks.right(logits, batch.labels)) / examples]
        sums = [tf.reduce_sum(logits), losses.total, *(tf.reduce_sum(each) for each in gradients)]
        return tf.stack([*metrics, *sums]), gradients


def _of_all_devices(part: tf.Tensor, most: int) -> tf.Tensor:
    """Concatenate the slices of a tensor on all devices, each filled up with zeros to `most` rows.

    Call it in a replica. TensorFlow ends with an error if the shapes of a collective operation change between
    two steps of a loop, as those of a short last batch would.
    """
    wide = tf.cast(part, tf.int32) if part.dtype == tf.uint8 else part  # uint8 cannot be gathered
    missing = [[0, most - tf.shape(part)[0]], *([[0, 0]] * (part.shape.rank - 1))]
    full = tf.ensure_shape(tf.pad(wide, missing), (most, *part.shape[1:]))
    return tf.cast(tf.distribute.get_replica_context().all_gather(full, axis=0), part.dtype)


class Averages:
    """Exponential moving averages of the trainable weights, computed like tf.train.ExponentialMovingAverage.

    They start from the values of the weights. Batch normalization statistics are averages already and are used
    as they are. Create it under `strategy.scope()`. Without a decay it has no averages and does nothing.
    """

    def __init__(self, model: keras.Model, config: AveragesConfig) -> None:
        self._decay, self._dynamic = config.decay, config.dynamic
        self._weights: list[keras.Variable] = model.trainable_variables if config.decay else []
        self._strategy = tf.distribute.get_strategy()
        self._raw: list[NDArray[np.float32]] | None = None
        self.variables = [tf.Variable(each.numpy(), trainable=False, name=each.path) for each in self._weights]

    def update(self, step: tf.Tensor) -> None:
        """Update the averages after the step that follows `step` completed ones; call it outside replicas.

        Each device updates its own copies. They stay equal because the weights are equal, so nothing is sent.
        """
        if self._decay is None:
            return
        share = tf.constant(1 - self._decay, tf.float64)
        if self._dynamic:
            # 1 - (1 + n) / (10 + n) after n steps; TensorFlow counts the current step.
            share = tf.maximum(share, 9 / (11 + tf.cast(step, tf.float64)))
        share = tf.cast(share, tf.float32)

        def move(average: tf.Variable, weight: tf.Tensor) -> None:
            average.assign_sub((average - weight) * share)

        for average, weight in zip(self.variables, self._weights, strict=True):
            self._strategy.extended.update(average, move, args=(weight.value,), group=False)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Replace the weights by the averages while the block runs."""
        self._raw = [weight.numpy() for weight in self._weights]
        try:
            self._assign(self.variables)
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Restore the original weights, even if a signal interrupted the end of `swapped`."""
        if self._raw is not None:
            self._assign(self._raw)
            self._raw = None

    def _assign(self, values: Sequence[tf.Variable | NDArray[np.float32]]) -> None:
        for weight, value in zip(self._weights, values, strict=True):
            weight.assign(value)
