"""When a training evaluates, saves, summarizes, profiles and stops: pure functions of the step and the scores.

`step` is the number of completed steps; a trigger returns whether its action follows after it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from perennial.base.config import Config
from perennial.base.config.training import TrainConfig

Metric = Literal["accuracy", "loss", "recall_at_5", "map"]
Limit = Literal["epochs", "steps"]
StoppedBy = Literal["threshold", "patience"] | Limit


@dataclass(frozen=True, kw_only=True)
class Length:
    """The maximum length of a training."""

    steps: int
    steps_per_epoch: int  # the last batch of an epoch may be smaller
    limit: Limit  # reason for stopping if no rule applies

    @property
    def epochs(self) -> int:
        """Epochs started; the last one may be cut short."""
        return math.ceil(self.steps / self.steps_per_epoch)


def length(train: TrainConfig, examples: int) -> Length:
    """The length of a training, from `train.epochs` or `train.max_steps`, whichever is set."""
    per_epoch = math.ceil(examples / train.batch_size)
    if train.max_steps is not None:
        return Length(steps=train.max_steps, steps_per_epoch=per_epoch, limit="steps")
    return Length(steps=(train.epochs or 0) * per_epoch, steps_per_epoch=per_epoch, limit="epochs")


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """Decides when actions are due. An interval of None means never."""

    length: Length
    eval_steps: int | None  # between two evaluations; one always follows the last step
    head_steps: int = 0  # length of the first phase, which trains only the head
    save_steps: int | None = None  # between two checkpoints
    save_seconds: float | None = None
    histogram_steps: int | None = None
    image_steps: int | None = None
    profiled: range = range(0)  # numbers of completed steps after which a step is profiled

    @classmethod
    def configured(cls, config: Config, length: Length, *, validates: bool = True) -> Self:
        """The triggers for the sections train, checkpoints and logging, with or without a validation split."""
        train, logging = config.train, config.logging
        eval_steps = train.steps_between_evals or train.epochs_between_evals * length.steps_per_epoch
        first = (logging.profile_from_step or 0) - 1
        return cls(
            length=length,
            eval_steps=eval_steps if validates else None,
            head_steps=train.head.steps,
            save_steps=config.checkpoints.interval_steps,
            save_seconds=config.checkpoints.interval_s,
            histogram_steps=logging.histograms_every_steps,
            image_steps=logging.images_every_steps,
            profiled=range(first, first + logging.profile_steps) if first >= 0 else range(0),
        )

    def position(self, step: int) -> tuple[int, int]:
        """The epoch of the next step, counted from 0, and the steps completed in it."""
        return divmod(step, self.length.steps_per_epoch)

    def evaluate(self, step: int) -> bool:
        """Whether an evaluation follows; always true after the last step."""
        return step == self.length.steps or (step > 0 and _every(step, self.eval_steps))

    def save(self, step: int, *, saved: int, seconds: float) -> bool:
        """Whether a checkpoint follows; the last one was of step `saved`, `seconds` ago."""
        if step == saved:
            return False
        by_time = self.save_seconds is not None and seconds >= self.save_seconds
        return by_time or (step > 0 and _every(step, self.save_steps)) or step == self.head_steps > 0

    def histograms(self, step: int) -> bool:
        """Whether histograms of all tensors follow."""
        return _every(step, self.histogram_steps)

    def images(self, step: int) -> bool:
        """Whether pictures of the model input follow."""
        return _every(step, self.image_steps)

    def next_event(self, step: int) -> int:
        """The step of the next action; all steps up to it can run in one call."""
        intervals = (self.eval_steps, self.save_steps, self.histogram_steps, self.image_steps)
        events = [step - step % interval + interval for interval in intervals if interval]
        # The profiler records one step per call.
        profiled = step + 1 if step in self.profiled else self.profiled.start
        return min(event for event in (*events, self.head_steps, profiled, self.length.steps) if event > step)


def _every(step: int, interval: int | None) -> bool:
    return interval is not None and step % interval == 0


def best(metric: Metric, scores: Sequence[float]) -> int | None:
    """The index of the best score, the first one of a tie; None if all are NaN."""
    indices = [index for index, score in enumerate(scores) if not math.isnan(score)]
    sign = 1 if metric == "loss" else -1
    return min(indices, key=lambda index: sign * scores[index], default=None)


def stopped_by(
    train: TrainConfig, scores: Sequence[float], *, of_head: int, limit: Limit | None
) -> StoppedBy | None:
    """The rule or limit that stops the training after an evaluation, if any; a rule takes precedence.

    `scores` are the `train.stop_metric` of all evaluations so far, at least one; the first `of_head` belong to
    the phase that trains only the head. `limit` is given at the last step, and None before it.
    """
    sign = -1 if train.stop_metric == "loss" else 1
    if train.stop_threshold is not None and sign * scores[-1] >= sign * train.stop_threshold:
        return "threshold"
    record = best(train.stop_metric, scores)
    without_better = len(scores) if record is None else len(scores) - 1 - record
    # A head that stops improving must not end the training before the next phase.
    without_better = min(without_better, len(scores) - of_head)
    if train.patience is not None and without_better >= train.patience:
        return "patience"
    return limit
