"""A progress bar for bytes, if there is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn


@contextmanager
def progress_bar(name: str, done_bytes: int, total_bytes: int | None) -> Iterator[Callable[[int], object]]:
    """Show bytes, speed and time left on a terminal; yields a function that advances by a number of bytes."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    # Transient: the log line that follows holds the same numbers.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=total_bytes, completed=done_bytes)
        yield lambda count: progress.advance(task, count)
