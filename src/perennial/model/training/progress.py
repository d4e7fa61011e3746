"""The progress of a training: a bar or log lines, curves in TensorBoard, and a file for flows."""

import contextlib
import logging
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich import progress as bars
from rich.console import Console

from perennial.base import files
from perennial.base.choices import SCORE_NAMES, STOP_METRICS, Task
from perennial.model.training.tensorboard import EventWriter
from perennial.model.training.training_history import Evaluation, Row
from perennial.model.training.triggers import Length

log = logging.getLogger(__name__)
LINE_EVERY_S = 10.0  # at most one line, however fast the steps are
FILE = "progress.json"  # in paths.work
FILE_EVERY_S = 2.0
SMOOTHED = ("loss", "aux_loss", "l2_loss", "total_loss")
SMOOTHING = 0.9  # decay of their moving averages, as in the CIFAR-10 tutorial
WARM_UP_STEPS = 5  # excluded from speeds: they compile and fill caches
CALL_S = 0.5  # target time of a multi-step call: hides its overhead, yet a signal is noticed soon
MAX_STEPS = 1000  # per call


class Pace:
    """The speed of the training steps of this process, after the warm-up."""

    def __init__(self) -> None:
        self._warm_up_left = WARM_UP_STEPS
        self._step_s: float | None = None
        self.steps, self.examples = 0, 0
        self.seconds, self.waited_s = 0.0, 0.0

    def add(self, *, steps: int, examples: int, seconds: float, waited_s: float) -> None:
        """Count a call of some steps, which waited `waited_s` for input."""
        if self._warm_up_left > 0:
            self._warm_up_left -= steps
            return
        self._step_s = seconds / steps
        self.steps, self.examples = self.steps + steps, self.examples + examples
        self.seconds, self.waited_s = self.seconds + seconds, self.waited_s + waited_s

    @property
    def steps_per_call(self) -> int:
        """The number of steps for the next call; 1 until the speed is known."""
        if self._step_s is None:
            return 1
        return max(1, min(MAX_STEPS, int(CALL_S / self._step_s)))

    @property
    def examples_per_second(self) -> float | None:
        """The speed over all steps after the warm-up; None before."""
        return self.examples / self.seconds if self.seconds else None

    @property
    def seconds_per_step(self) -> float | None:
        """The mean time of the steps after the warm-up; None before."""
        return self.seconds / self.steps if self.steps else None

    @property
    def input_wait(self) -> float | None:
        """The share of the time that steps waited for input, 0..1; None before the warm-up ends."""
        return self.waited_s / self.seconds if self.seconds else None


class Progress:
    """Shows steps and evaluations, and writes them to TensorBoard and to a JSON file.

    The file holds the latest values: epoch and step with their totals, the main score of the last evaluation
    (accuracy or map), examples per second and the seconds left; unknown values are null. Enter `bar` to show
    the bar. Every `every_steps` steps add a point to the curves and, without a terminal, log a line, at most
    one in ten seconds.
    """

    def __init__(self, length: Length, logs: Path, file: Path, *, every_steps: int, task: Task) -> None:
        self._length, self._logs, self._file = length, logs, file
        self._metric, self._score_name = STOP_METRICS[task][0], SCORE_NAMES[task]
        self._every_steps = every_steps
        self.bar = bars.Progress(
            *bars.Progress.get_default_columns(),
            bars.TextColumn("{task.fields[state]}"),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self.bar.add_task("training", total=length.steps, state="starting")
        self._losses: list[float] = []  # since the last evaluation
        self._smoothed: dict[str, float] = {}
        self._last_line = self._last_written = -math.inf
        self._score: float | None = None
        self._last = (time.monotonic(), 0, 0)  # time, steps and examples of the last point or evaluation

    def resume(self, step: int, rows: Sequence[Row] = ()) -> None:
        """Drop the points of the curves after `step`; `rows` are those of the steps up to it."""
        self._events = EventWriter(self._logs, purge_step=step + 1 if step else 0)
        for row in rows:
            self._smooth(row)

    def add_steps(self, rows: Sequence[Row], pace: Pace) -> None:
        """Show some steps."""
        self._losses += [row.loss for row in rows]
        speed = pace.examples_per_second
        if speed is None:
            self._restart_interval(pace)
        state = f"loss {rows[-1].loss:.4f}" + (f"  {speed:,.0f} examples/s" if speed else "")
        self.bar.update(self._task, completed=rows[-1].step, state=state)
        for row in rows:
            self._smooth(row)
            if row.step % self._every_steps == 0:
                values = asdict(row) | {f"smoothed_{name}": loss for name, loss in self._smoothed.items()}
                self._events.add_scalars(values.pop("step"), "train", values)
        points = [row for row in rows if row.step % self._every_steps == 0]
        if points:
            self._show_speed(points[-1], pace)
        self._write(rows[-1].step, pace)

    def add_evaluation(self, evaluation: Evaluation, pace: Pace) -> None:
        """Show a validation result with the mean training loss since the previous one and the speed."""
        values = asdict(evaluation)
        values.pop("epoch")
        self._events.add_scalars(values.pop("step"), "validation", values)
        line = f"epoch {evaluation.epoch} of {self._length.epochs}, step {evaluation.step}: "
        if self._losses:
            line += f"training loss {sum(self._losses) / len(self._losses):.4f}, "
        score = values[self._metric]
        line += f"validation {self._score_name} {score:.4f}, validation loss {values['loss']:.4f}"
        if (speed := pace.examples_per_second) is not None:
            line += f", {speed:,.0f} examples/s, {pace.seconds_per_step or 0:.3g} s per step, "
            line += f"{pace.input_wait or 0:.0%} waiting for input"
        self._show(line)
        self._losses, self._score, self._last_written = [], score, -math.inf
        self._write(evaluation.step, pace)
        self._restart_interval(pace)

    def _smooth(self, row: Row) -> None:
        """Move the averages of the losses, which start from the first ones."""
        for name in SMOOTHED:
            loss = getattr(row, name)
            self._smoothed[name] = SMOOTHING * self._smoothed.get(name, loss) + (1 - SMOOTHING) * loss

    def _show_speed(self, row: Row, pace: Pace) -> None:
        line = f"step {row.step} of {self._length.steps}: training loss {row.loss:.4f}"
        if pace.examples_per_second is not None:
            began, steps, examples = self._last
            seconds = time.monotonic() - began
            current = (pace.examples - examples) / seconds
            values = {
                "current_examples_per_second": current,
                "average_examples_per_second": pace.examples_per_second,
                "seconds_per_step": seconds / (pace.steps - steps),
                "input_wait": pace.input_wait or 0.0,
            }
            self._events.add_scalars(row.step, "train", values)
            line += f", {current:,.0f} examples/s, {values['seconds_per_step']:.3g} s per step"
            self._restart_interval(pace)
        if self.bar.disable and time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._show(line)

    def _write(self, step: int, pace: Pace) -> None:
        """Write the file, unless it was just written. A failure does not end the training."""
        if time.monotonic() - self._last_written < FILE_EVERY_S:
            return
        shown = {
            "epoch": -(-step // self._length.steps_per_epoch),
            "epochs": self._length.epochs,
            "step": step,
            "steps": self._length.steps,
            self._metric: self._score,
            "examples_per_second": pace.examples_per_second,
            "seconds_left": (self._length.steps - step) * pace.seconds / pace.steps if pace.steps else None,
        }
        with contextlib.suppress(OSError), files.new_file(self._file, durable=False) as stream:
            stream.write(files.json_bytes(shown))
        self._last_written = time.monotonic()

    def _restart_interval(self, pace: Pace) -> None:
        """Restart the measurement of the current speed, which excludes evaluations and the warm-up."""
        self._last = (time.monotonic(), pace.steps, pace.examples)

    def _show(self, line: str) -> None:
        """Log a line, or print it above the bar, which log output would break."""
        if self.bar.disable:
            log.info("%s", line)
        else:
            self.bar.console.print(line, markup=False, highlight=False)
        self._last_line = time.monotonic()
