"""How long a training is and when it ends: pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perennial.config.training import TrainConfig
from perennial.errors import PerennialError

Metric = Literal["accuracy", "loss", "recall_at_5"]
Limit = Literal["epochs", "steps"]
StoppedBy = Literal["threshold", "patience"] | Limit


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long a training may last."""

    steps: int  # optimizer updates in all
    steps_per_epoch: int  # the last batch of an epoch may be smaller
    limit: Limit  # what ends it when no rule does

    @property
    def epochs(self) -> int:
        """Epochs begun, the last perhaps cut short."""
        return math.ceil(self.steps / self.steps_per_epoch)


def length(*, examples: int, batch_size: int, epochs: int | None, max_steps: int | None) -> Length:
    """The length of a training of `epochs` or `max_steps`, whichever is set."""
    steps_per_epoch = math.ceil(examples / batch_size)
    if max_steps is not None:
        return Length(steps=max_steps, steps_per_epoch=steps_per_epoch, limit="steps")
    return Length(steps=(epochs or 0) * steps_per_epoch, steps_per_epoch=steps_per_epoch, limit="epochs")


def reached(metric: Metric, score: float, threshold: float | None) -> bool:
    """Whether a score is at least as good as the threshold; NaN never is."""
    if threshold is None:
        return False
    return score <= threshold if metric == "loss" else score >= threshold


def better(metric: Metric, new: float, best: float | None) -> bool:
    """Whether a score beats the best so far; NaN beats nothing, and anything else beats none."""
    if best is None:
        return not math.isnan(new)
    return new < best if metric == "loss" else new > best


def best(metric: Metric, scores: Sequence[float]) -> int | None:
    """Which score is the best, the first of equals; None where none is a number."""
    found: int | None = None
    for index, score in enumerate(scores):
        if better(metric, score, None if found is None else scores[found]):
            found = index
    return found


def decide(
    config: TrainConfig, scores: Sequence[float], *, of_head: int, limit: Limit | None
) -> StoppedBy | None:
    """What ends the training after an evaluation, if anything does.

    `scores` are train.stop_metric of all evaluations so far, at least one, the first `of_head` of them while
    the head was trained alone; `limit` is what the last update meets, None before it. A rule goes before the
    limit.
    """
    if reached(config.stop_metric, scores[-1], config.stop_threshold):
        return "threshold"
    record = best(config.stop_metric, scores)
    without_better = len(scores) if record is None else len(scores) - 1 - record
    # A head that gets no better is no reason to leave out what comes after it.
    without_better = min(without_better, len(scores) - of_head)
    if config.patience is not None and without_better >= config.patience:
        return "patience"
    return limit


def refuse_non_finite(step: int, tensors: Sequence[str], *, last_good: int | None) -> None:
    """Ends a training in which tensors hold NaN or infinity; `tensors` names them, the cause first.

    Raises:
        PerennialError: there are any.
    """
    if not tensors:
        return
    first, others = tensors[0], len(tensors) - 1
    kept = "no checkpoint" if last_good is None else f"the checkpoint of step {last_good}, the last good one,"
    raise PerennialError(
        f"the {first} {'are' if first.startswith('logits') else 'is'} NaN or infinite at step {step}"
        + (f" (and {others} other tensors after it)" if others else "")
        + f"; no model was written, {kept} was kept; lower train.learning_rate, or set train.clip_norm"
    )
