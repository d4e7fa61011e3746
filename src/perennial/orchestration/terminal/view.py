"""The progress of a run: live on a terminal, with log lines in a file, and as an artifact on a server."""

import contextvars
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Column, Table
from rich.text import Text

from perennial.base import logs
from perennial.orchestration.engine import this_run
from perennial.orchestration.engine.decorators import FLOW, LINE_FORMAT
from perennial.orchestration.work.dvc_repo import work_folder

LOG = "retrain.log"  # in paths.work, of the last run
# Prefect's messages, which the rows and the end of the command show already.
STATES = ("Finished in state", "Crash detected")
COMMANDS = ("Running stage", "> ")  # DVC's lines before the first line of a stage
OURS = ("prefect.", "perennial.")  # loggers whose warnings are for the person at the terminal
MOST = 110  # columns of a row
ECHO = 2  # columns left free after it, where the terminal shows ^C
WIDE, BAR, SHORT_BAR = 100, 20, 6  # columns of a terminal with room for a longer bar, and of the bars
PROGRESS_S = 3.0  # between two looks at the file of a training
TIMEOUT_S = 10.0


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


@contextmanager
def training_progress() -> Iterator[None]:
    """Show the progress of the training in this block as the Prefect artifact `training`."""
    if not this_run.has_server():
        yield
        return
    file, over = work_folder() / "progress.json", threading.Event()
    # The run that artifacts belong to is in the context.
    run, before = contextvars.copy_context().run, _changed(file)
    thread = threading.Thread(target=lambda: run(_show_progress, file, before, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_progress(file: Path, shown: int, over: threading.Event) -> None:
    """Show each new content of a file until the training is over; `shown`: the change to leave out."""
    from prefect.artifacts import create_progress_artifact, update_progress_artifact
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    artifact: UUID | None = None
    last = False
    while not last:
        last = over.wait(PROGRESS_S)
        if (changed := _changed(file)) == shown:
            continue
        # Nobody waits for this one: the next look shows more.
        limits = {PREFECT_API_REQUEST_TIMEOUT: TIMEOUT_S, PREFECT_CLIENT_MAX_RETRIES: 0}
        try:
            percent, text = progress(json.loads(file.read_text(encoding="utf-8")))
            with temporary_settings(limits):
                if artifact is None:
                    created = create_progress_artifact(percent, key="training", description=text)
                    artifact = UUID(str(created))
                else:
                    update_progress_artifact(artifact, percent, description=text)
        except Exception as error:  # noqa: BLE001 - the server is down; training continues
            logging.getLogger(__name__).debug("the progress is not shown: %s", error)
        else:
            shown = changed


def progress(training: Mapping[str, Any]) -> tuple[float, str]:
    """The progress of a training as a percentage and as text, from the file that it writes."""
    # The accuracy is that on validation.
    shown = [f"epoch {training['epoch']} of {training['epochs']}"]
    if (score := training.get("map", training.get("accuracy"))) is not None:
        shown.append(f"{'mAP' if 'map' in training else 'accuracy'} {score:.4f}")
    if (seconds := training["seconds_left"]) is not None:
        left = str(timedelta(seconds=round(seconds)))
        shown.append(f"{left.removeprefix('0:')} left")
    if (speed := training["examples_per_second"]) is not None:  # last: a narrow terminal cuts it off
        shown.append(f"{speed:,.0f} examples/s")
    steps = training["steps"]  # 0 with train.max_steps 0
    return round(100 * training["step"] / steps, 1) if steps else 100.0, ", ".join(shown)


def _changed(file: Path) -> int:
    """The modification time of a file in nanoseconds; 0 if it does not exist."""
    return file.stat().st_mtime_ns if file.exists() else 0
