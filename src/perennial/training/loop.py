"""The training loop: epochs of optimizer steps, evaluations, and the rule that ends them."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import keras
import tensorflow as tf

from perennial.config.sections import TrainConfig
from perennial.evaluation.scores import Scores
from perennial.preprocessing import Pixels
from perennial.training import stopping
from perennial.training.progress import Progress
from perennial.training.stopping import Length, StoppedBy

log = logging.getLogger(__name__)
# Enough to hide the cost of a dispatch, few enough that a signal is heard within seconds.
STEPS_PER_CALL = 10
OPTIMIZERS: dict[str, type[keras.optimizers.Optimizer]] = {"adam": keras.optimizers.Adam}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The model's scores on validation after an epoch."""

    epoch: int  # epochs done
    step: int  # updates done
    accuracy: float
    loss: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a training went."""

    stopped_by: StoppedBy
    evaluations: list[Evaluation]  # the last is of the final weights


class Trainer:
    """A model with its optimizer and the compiled function that updates it."""

    def __init__(
        self,
        build: Callable[[], keras.Model],
        pixels: Pixels,
        config: TrainConfig,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self.strategy = strategy
        self.pixels = pixels
        with strategy.scope():
            self.model = build()
            self.optimizer = OPTIMIZERS[config.optimizer](config.learning_rate)
            self.optimizer.build(self.model.trainable_variables)
        self._run = tf.function(self._steps, reduce_retracing=True)

    def run(self, iterator: tf.data.Iterator, steps: int) -> tuple[float, int]:
        """Updates the weights `steps` times; the mean loss over those steps, and their examples."""
        loss_sum, examples = self._run(iterator, tf.constant(steps))
        return float(loss_sum) / steps, int(examples)

    def _steps(self, iterator: tf.data.Iterator, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        loss_sum, seen = tf.constant(0.0), tf.constant(0.0)
        for _ in tf.range(steps):
            losses, examples = self.strategy.run(self._step, args=next(iterator))
            loss_sum += self.strategy.reduce("SUM", losses, axis=None)
            seen += self.strategy.reduce("SUM", examples, axis=None)
        return loss_sum, seen

    def _step(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """One update on this replica's part of the batch: its share of the mean loss, its examples."""
        own_examples = tf.cast(tf.shape(labels)[0], tf.float32)
        examples = tf.distribute.get_replica_context().all_reduce("SUM", own_examples)
        # A short last batch can leave a replica without examples, which convolutions refuse: it gets a blank
        # one, whose loss counts nothing.
        blank = tf.cast(tf.equal(tf.shape(labels)[0], 0), tf.int32)
        images, labels = tf.pad(images, [[0, blank], [0, 0], [0, 0], [0, 0]]), tf.pad(labels, [[0, blank]])
        with tf.GradientTape() as tape:
            logits = self.model(self.pixels.preprocess(images), training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) * (1.0 - tf.cast(blank, tf.float32)) / examples
        weights = self.model.trainable_variables
        # Keras sums the replicas' gradients; their losses are shares of one mean, so the sum is its gradient.
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return loss, own_examples


def fit(
    trainer: Trainer,
    epoch_batches: Callable[[int], tf.data.Dataset],
    evaluate: Callable[[], Scores],
    length: Length,
    config: TrainConfig,
    progress: Progress,
) -> Result:
    """Trains until the stop threshold or the last step; the last weights are always evaluated.

    Raises:
        PerennialError: the loss is not finite.
    """
    evaluations: list[Evaluation] = []
    step = 0
    for epoch in range(length.epochs):
        # A new iterator each epoch, so that the order depends on the epoch alone and not on what ran before.
        batches = iter(trainer.strategy.experimental_distribute_dataset(epoch_batches(epoch)))
        end = step + length.steps_in(epoch)
        while step < end:
            started, steps = time.monotonic(), min(STEPS_PER_CALL, end - step)
            loss, examples = trainer.run(batches, steps)
            step += steps
            stopping.refuse_non_finite(loss, step)
            seconds = time.monotonic() - started
            progress.steps(step, steps=steps, loss=loss, examples=examples, seconds=seconds)
        if not stopping.evaluates(
            epoch, epochs=length.epochs, epochs_between_evals=config.epochs_between_evals
        ):
            continue
        scores = evaluate()
        evaluations.append(Evaluation(epoch=epoch + 1, step=step, accuracy=scores.accuracy, loss=scores.loss))
        progress.evaluation(evaluations[-1])
        if stopping.reached(scores.accuracy, config.stop_threshold):
            return Result(stopped_by="threshold", evaluations=evaluations)
    return Result(stopped_by=length.limit, evaluations=evaluations)
