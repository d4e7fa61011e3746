"""A progress bar for bytes, if there is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(name: str, done_bytes: int, total_bytes: int | None) -> Iterator[Callable[[int], object]]:
    """Show bytes, speed and time left on a terminal; yields a function that advances by a number of bytes."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    # Transient: the log line that follows holds the same numbers.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=total_bytes, completed=done_bytes)
        yield lambda count: progress.advance(task, count)
