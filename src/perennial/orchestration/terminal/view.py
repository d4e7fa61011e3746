"""The live view of a run on a terminal, with log lines in a file."""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Column, Table
from rich.text import Text

from perennial.base import logs
from perennial.orchestration.engine.local_runs import FLOW, LINE_FORMAT
from perennial.orchestration.steps.progress_artifact import progress

LOG = "retrain.log"  # in paths.work, of the last run
# Prefect's messages, which the rows and the end of the command show already.
STATES = ("Finished in state", "Crash detected")
COMMANDS = ("Running stage", "> ")  # DVC's lines before the first line of a stage
OURS = ("prefect.", "perennial.")  # loggers whose warnings are for the person at the terminal
MOST = 110  # columns of a row
ECHO = 2  # columns left free after it, where the terminal shows ^C
WIDE, BAR, SHORT_BAR = 100, 20, 6  # columns of a terminal with room for a longer bar, and of the bars


class View(logging.Handler):
    """Shows a row per stage: its result and seconds, or its current activity. Warnings are above the rows.

    It reads log records: `stage`, or else `task_name`, names their stage, and `result`, where
    there is one, is the result of the stage.
    """

    def __init__(self, console: Console, stages: Sequence[str], training: Path) -> None:
        super().__init__(logging.INFO)
        self._console, self._stages, self._training = console, stages, training
        self._results: dict[str, tuple[str, float]] = {}
        self._line = "checking pins and stages"
        self._started = time.monotonic()
        self._spinner = Spinner("dots" if console.encoding.startswith("utf") else "line")

    def emit(self, record: logging.LogRecord) -> None:
        """Show a log record."""
        line, _, _ = record.getMessage().strip().partition("\n")
        stage = str(getattr(record, "stage", "") or getattr(record, "task_name", ""))
        result = getattr(record, "result", None)
        if stage and stage not in self._stages:  # pins and records: no time of the next stage
            self._started = time.monotonic()
        if stage in self._stages and result:
            self._results[stage] = result, time.monotonic() - self._started
            self._line, self._started = "", time.monotonic()
        elif record.levelno >= logging.WARNING:
            if record.name.startswith(OURS) and not line.startswith(STATES):
                self._console.print(Text(line, "yellow"))
        elif stage in self._stages and not line.startswith((*STATES, *COMMANDS)):
            self._line = line

    def __rich__(self) -> RenderableType:
        """The rows."""
        widths = Column(width=1), Column(width=max(map(len, self._stages)))
        rows = Table.grid(
            *widths, Column(ratio=1, no_wrap=True), Column(width=7, justify="right"), padding=(0, 2)
        )
        rows.width = min(MOST, self._console.width - ECHO)
        current = next((stage for stage in self._stages if stage not in self._results), None)
        done = "✓" if self._console.encoding.startswith("utf") else "+"
        for stage in self._stages:
            if stage in self._results:
                result, seconds = self._results[stage]
                rows.add_row(Text(done, "green"), stage, Text(result, "dim"), f"{seconds:.1f} s")
            elif stage == current:
                seconds = time.monotonic() - self._started
                rows.add_row(self._spinner, Text(stage, "bold"), self._now(stage), f"{seconds:.0f} s")
            else:
                rows.add_row("", Text(stage, "dim"), "", "")
        if current is None:
            return Group(rows, Text(self._line, "dim"))
        return rows

    def _now(self, stage: str) -> RenderableType:
        """The progress of the current stage: a bar for a training, else its last log line."""
        with suppress(OSError, ValueError, KeyError):  # not written yet, or of another training
            age = time.time() - self._training.stat().st_mtime
            if stage == "train" and age < time.monotonic() - self._started:
                percent, text = progress(json.loads(self._training.read_text(encoding="utf-8")))
                width = BAR if self._console.width >= WIDE else SHORT_BAR
                bar = Table.grid(
                    Column(width=width), Column(ratio=1, no_wrap=True), padding=(0, 2), expand=True
                )
                done = ProgressBar(total=100, completed=percent, width=width)
                bar.add_row(done, Text(text, "dim", overflow="ellipsis"))
                return bar
        return Text(self._line, "dim", overflow="ellipsis")


@contextmanager
def live_view(stages: Sequence[str], work: Path) -> Iterator[Path | None]:
    """Show a live view during the block, and write the log lines to the file that it yields."""
    # Without a terminal, the lines go where Prefect prints them, and it yields None.
    console = Console(stderr=True)
    root = logging.getLogger()
    files, streams = logging.FileHandler, logging.StreamHandler
    printing = [each for each in root.handlers if isinstance(each, streams) and not isinstance(each, files)]
    if not console.is_terminal or not printing:
        yield None
        return
    work.mkdir(parents=True, exist_ok=True)
    file = work / LOG
    lines = logging.FileHandler(file, mode="w", encoding="utf-8", errors="backslashreplace")
    lines.setFormatter(logs.Lines(LINE_FORMAT, defaults=FLOW))
    view = View(console, stages, work / "progress.json")
    for handler in printing:  # including lines after the block, while the process ends
        root.removeHandler(handler)
    root.addHandler(lines)
    root.addHandler(view)
    try:
        with Live(view, console=console, refresh_per_second=8):
            yield file
    finally:
        root.removeHandler(view)
