"""When training evaluates and when it ends: pure functions."""

import math
from dataclasses import dataclass
from typing import Literal

from perennial.errors import QualityError

StoppedBy = Literal["threshold", "epochs", "steps"]


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long a training may last."""

    steps: int  # optimizer updates in all
    steps_per_epoch: int  # the last batch of an epoch may be smaller
    limit: StoppedBy  # what ends it when no threshold does

    @property
    def epochs(self) -> int:
        """Epochs begun, the last perhaps cut short."""
        return math.ceil(self.steps / self.steps_per_epoch)

    def steps_in(self, epoch: int) -> int:
        """Updates in an epoch, counted from 0."""
        return min(self.steps_per_epoch, self.steps - epoch * self.steps_per_epoch)


def length(*, examples: int, batch_size: int, epochs: int | None, max_steps: int | None) -> Length:
    """The length of a training of `epochs` or `max_steps`, whichever is set."""
    steps_per_epoch = math.ceil(examples / batch_size)
    if max_steps is not None:
        return Length(steps=max_steps, steps_per_epoch=steps_per_epoch, limit="steps")
    return Length(steps=(epochs or 0) * steps_per_epoch, steps_per_epoch=steps_per_epoch, limit="epochs")


def evaluates(epoch: int, *, epochs: int, epochs_between_evals: int) -> bool:
    """Whether an evaluation follows an epoch counted from 0; the last epoch is always evaluated."""
    return epoch + 1 == epochs or (epoch + 1) % epochs_between_evals == 0


def reached(accuracy: float, threshold: float | None) -> bool:
    """Whether a validation accuracy ends the training; NaN never does."""
    return threshold is not None and accuracy >= threshold


def refuse_non_finite(loss: float, step: int) -> None:
    """Ends a training whose loss is no number any more.

    Raises:
        QualityError: the loss is NaN or infinite.
    """
    if not math.isfinite(loss):
        raise QualityError(
            f"the loss is {loss} by step {step}; no model was written; lower train.learning_rate"
        )
