"""A bar for a person who watches: bytes, speed, time left. Nothing where stderr is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@contextmanager
def bar(name: str, done_bytes: int, total_bytes: int | None) -> Iterator[Callable[[int], object]]:
    """Gives the function that is told of every piece, in bytes."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    # Transient: the line of the log that follows says what a person wants to keep.
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(name, total=total_bytes, completed=done_bytes)
        yield lambda count: shown.advance(task, count)
