"""Output that nobody reads any more: a closed terminal, or a worker that was killed."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TextIO

from rich.console import Console


def ignore_closed_terminal() -> None:
    """Discard the output of this process once its terminal is closed."""
    # Each write would raise an error, in place of the signal or the failure that a line is about.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream and stream.isatty():
            setattr(sys, name, _Terminal(stream))


def keep_running_without_worker() -> None:
    """Keep this process alive if its worker, which reads its output, is killed; the server has the log, too."""
    # Rich, which prints Prefect's log, would end the process at the next line.

    def discard(console: Console) -> None:
        _discard(console.file)

    Console.on_broken_pipe = discard  # type: ignore[assignment,method-assign]


class _Terminal:
    """A stream to a terminal that may be closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        try:
            return self._stream.write(text)
        except OSError:
            _discard(self._stream)
            return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._stream.flush()
        except OSError:
            _discard(self._stream)


def _discard(stream: IO[str]) -> None:
    with suppress(OSError, ValueError), Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())
