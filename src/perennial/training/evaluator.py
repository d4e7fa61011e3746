"""Evaluations during a training: the scores on validation, the best weights, and whether to stop."""

import contextlib
from collections.abc import Callable

import tensorflow as tf

from perennial.config.training import TrainConfig
from perennial.evaluation.scoring import Scores
from perennial.runtime import process
from perennial.training import triggers
from perennial.training.distributed import Peers
from perennial.training.history import Evaluation, State
from perennial.training.train_step import Trainer
from perennial.training.triggers import Length


class Evaluator:
    """Scores the weights of a trainer, and keeps those of the best evaluation with `train.keep: best`."""

    def __init__(
        self, trainer: Trainer, score: Callable[[], Scores], config: TrainConfig, length: Length, peers: Peers
    ) -> None:
        """`score` returns the scores of the model on validation, with its current weights."""
        self._trainer, self._score, self._config = trainer, score, config
        self._length, self._peers = length, peers
        weights = trainer.model.weights if config.keep == "best" else []
        self.best = [tf.Variable(tf.zeros_like(weight.value), name=weight.path) for weight in weights]

    def evaluate(self, state: State, note: Callable[[Evaluation], None]) -> None:
        """Score the current weights, keep them if they are the best, decide whether to stop; `note` records it.

        Raises:
            NonFinite: a logit on validation is NaN or infinite.
        """
        config, length = self._config, self._length
        with self._trainer.averages.swapped():
            accuracy, loss, recall_at_5 = self._scores()
            new = Evaluation(
                epoch=-(-state.step // length.steps_per_epoch),
                step=state.step,
                accuracy=accuracy,
                loss=loss,
                recall_at_5=recall_at_5,
            )
            every = [*state.evaluations, new]
            scores = [getattr(each, config.stop_metric) for each in every]
            if triggers.best(config.stop_metric, scores) == len(scores) - 1:
                state.best_step = state.step
                for kept, weight in zip(self.best, self._trainer.model.weights, strict=False):
                    kept.assign(weight.value)
        limit = length.limit if state.step == length.steps else None
        of_head = sum(each.step <= config.head.steps for each in every)
        with process.signals_held():  # a checkpoint has both the evaluation and its decision, or neither
            state.evaluations.append(new)
            state.stopped_by = triggers.stopped_by(config, scores, of_head=of_head, limit=limit)
            note(new)

    def final_weights(self) -> contextlib.AbstractContextManager[None]:
        """Assign the final weights to the model: the last or the best, averaged if configured."""
        if not self.best:
            return self._trainer.averages.swapped()
        for weight, kept in zip(self._trainer.model.weights, self.best, strict=True):
            weight.assign(kept)
        return contextlib.nullcontext()

    def _scores(self) -> list[float]:
        """Accuracy, loss and recall at 5 as the chief computes them: those of others may differ by rounding."""
        found = (0.0, 0.0, 0.0)
        if self._peers.is_chief:
            scores = self._score()
            found = scores.accuracy, scores.loss, scores.recall_at_5
        chiefs: list[float] = self._peers.all_gather(*found)[0].tolist()
        return chiefs
