"""What a person sees of a training: a bar on a terminal, lines otherwise, and TensorBoard."""

import logging
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import progress as bars
from rich.console import Console

from perennial import files
from perennial.config.training import LoggingConfig
from perennial.training import events
from perennial.training.history import Evaluation, Row
from perennial.training.pace import Pace
from perennial.training.profile import Profile
from perennial.training.stopping import Length

log = logging.getLogger(__name__)
LINE_EVERY_S = 10  # at most, however fast updates come


class Progress:
    """Shows updates and evaluations while the block runs, and writes them as TensorBoard scalars.

    Each `logging.every_steps` updates there is a point of the curves and, without a terminal, a line.
    """

    def __init__(self, length: Length, logs: Path, config: LoggingConfig) -> None:
        self._length, self._logs, self._every_steps = length, logs, config.every_steps
        self.profile = Profile(config, logs)
        self._console = Console(stderr=True)
        self._bar = bars.Progress(
            *bars.Progress.get_default_columns(),
            bars.TextColumn("{task.fields[state]}"),
            console=self._console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("training", total=length.steps, state="starting")
        self._loss_sum, self._rows = 0.0, 0
        self._last_line = -math.inf
        self._file = logs / f"{events.PREFIX}{time.time():.0f}"
        self._interval = _Interval()

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
        self.profile.stop()

    def replay(self, rows: Sequence[Row], evaluations: Sequence[Evaluation]) -> None:
        """Starts TensorBoard's file anew with what is known, so that it too has each step once."""
        for old in self._logs.glob(f"{events.PREFIX}*"):
            old.unlink()
        points = [_training(row) for row in rows if self._tells(row)]
        files.write_bytes(self._file, b"".join([events.START, *points, *map(_validation, evaluations)]))

    def steps(self, rows: Sequence[Row], pace: Pace, *, examples: int) -> None:
        """After some updates with so many examples."""
        self._loss_sum, self._rows = self._loss_sum + sum(row.loss for row in rows), self._rows + len(rows)
        told, speed = [row for row in rows if self._tells(row)], pace.examples_per_second
        if speed is None:
            self._interval = _Interval()
        else:
            self._interval.add(len(rows), examples)
        state = f"loss {rows[-1].loss:.4f}" + (f"  {speed:,.0f} examples/s" if speed else "")
        self._bar.update(self._task, completed=rows[-1].step, state=state)
        if told:
            self._write(_training(row) for row in told)
            self._tell(told[-1], pace)

    def evaluation(self, done: Evaluation, pace: Pace) -> None:
        """After an evaluation on validation; loss since the one before and speed are told with it."""
        self._write([_validation(done)])
        line = f"epoch {done.epoch} of {self._length.epochs}, step {done.step}: "
        if self._rows:
            line += f"training loss {self._loss_sum / self._rows:.4f}, "
        line += f"validation accuracy {done.accuracy:.4f}, validation loss {done.loss:.4f}"
        if pace.examples_per_second is not None:
            line += (
                f", {pace.examples_per_second:,.0f} examples/s, {pace.input_wait or 0:.0%} waiting for input"
            )
        self._say(line)
        self._loss_sum, self._rows = 0.0, 0
        self._interval = _Interval()

    def _tells(self, row: Row) -> bool:
        return row.step % self._every_steps == 0

    def _tell(self, row: Row, pace: Pace) -> None:
        """Says how fast it goes, at a step that has a point of the curves."""
        line = f"step {row.step} of {self._length.steps}: training loss {row.loss:.4f}"
        if pace.examples_per_second is not None:
            examples_s, step_s = self._interval.speed()
            values = {
                "current_examples_per_second": examples_s,
                "average_examples_per_second": pace.examples_per_second,
                "input_wait": pace.input_wait or 0.0,
            }
            self._write([_point(row.step, "train", values)])
            line += f", {examples_s:,.0f} examples/s, {step_s:.3g} s a step"
            self._interval = _Interval()
        if self._bar.disable and time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._say(line)

    def _say(self, line: str) -> None:
        """A line for the log, or above the bar, which a log line would break."""
        if self._bar.disable:
            log.info("%s", line)
        else:
            self._bar.console.print(line, markup=False, highlight=False)
        self._last_line = time.monotonic()

    def _write(self, points: Iterable[bytes]) -> None:
        with self._file.open("ab") as stream:
            stream.write(b"".join(points))


@dataclass
class _Interval:
    """The updates since speeds were last told, evaluations and warm-up left out."""

    began: float = field(default_factory=time.monotonic)
    steps: int = 0
    examples: int = 0

    def add(self, steps: int, examples: int) -> None:
        self.steps, self.examples = self.steps + steps, self.examples + examples

    def speed(self) -> tuple[float, float]:
        """Examples a second, seconds a step."""
        seconds = time.monotonic() - self.began
        return self.examples / seconds, seconds / self.steps


def _training(row: Row) -> bytes:
    values = {"loss": row.loss, "total_loss": row.total_loss, "learning_rate": row.learning_rate}
    return _point(row.step, "train", values)


def _validation(done: Evaluation) -> bytes:
    values = {"accuracy": done.accuracy, "loss": done.loss, "recall_at_5": done.recall_at_5}
    return _point(done.step, "validation", values)


def _point(step: int, group: str, values: dict[str, float]) -> bytes:
    return events.record(step, (events.scalar(f"{group}/{name}", value) for name, value in values.items()))
