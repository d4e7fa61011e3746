"""What a person sees of a training: a bar on a terminal, lines otherwise, and TensorBoard."""

import logging
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import tensorflow as tf
from rich import progress as bars
from rich.console import Console

from perennial.training.stopping import Length

if TYPE_CHECKING:
    from perennial.training.loop import Evaluation

log = logging.getLogger(__name__)
LINE_EVERY_S = 15


class Progress:
    """Shows steps and evaluations while the block runs, and writes them as TensorBoard scalars."""

    def __init__(self, length: Length, logs: Path) -> None:
        self._length = length
        self._writer = tf.summary.create_file_writer(str(logs))
        self._console = Console(stderr=True)
        self._bar = bars.Progress(
            *bars.Progress.get_default_columns(),
            bars.TextColumn("{task.fields[state]}"),
            console=self._console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("training", total=length.steps, state="starting")
        self._loss_sum, self._steps = 0.0, 0
        self._examples, self._seconds = 0, 0.0
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        self._writer.close()

    def steps(self, step: int, *, steps: int, loss: float, examples: int, seconds: float) -> None:
        """After some updates: how many, their mean training loss, their examples, the time they took."""
        self._loss_sum, self._steps = self._loss_sum + loss * steps, self._steps + steps
        self._examples, self._seconds = self._examples + examples, self._seconds + seconds
        speed = examples / seconds
        state = f"loss {loss:.4f}  {speed:,.0f} examples/s"
        self._bar.update(self._task, completed=step, state=state)
        self._scalars(step, {"train/loss": loss, "train/examples_per_second": speed})
        if self._bar.disable and time.monotonic() - self._last_line > LINE_EVERY_S:
            self._say(f"step {step} of {self._length.steps}: training {state}")

    def evaluation(self, done: "Evaluation") -> None:
        """After an evaluation on validation; loss and speed since the one before are told with it."""
        self._scalars(done.step, {"validation/accuracy": done.accuracy, "validation/loss": done.loss})
        self._say(
            f"epoch {done.epoch} of {self._length.epochs}, step {done.step}: "
            f"training loss {self._loss_sum / self._steps:.4f}, validation accuracy {done.accuracy:.4f}, "
            f"validation loss {done.loss:.4f}, {self._examples / self._seconds:,.0f} examples/s"
        )
        self._loss_sum, self._steps = 0.0, 0
        self._examples, self._seconds = 0, 0.0

    def _say(self, line: str) -> None:
        """A line for the log, or above the bar, which a log line would break."""
        if self._bar.disable:
            log.info("%s", line)
        else:
            self._bar.console.print(line, markup=False, highlight=False)
        self._last_line = time.monotonic()

    def _scalars(self, step: int, values: dict[str, float]) -> None:
        with self._writer.as_default():
            for name, value in values.items():
                tf.summary.scalar(name, value, step)
