"""A process for each trial. That of the next one imports TensorFlow while the present one trains."""

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from perennial.base import layout
from perennial.base.processes import process
from perennial.project.tune import trial
from perennial.project.tune.trial import Task

GRACE_S = 30.0  # for the last checkpoint of an interrupted trial
OUTPUT = "processes.log"  # in the folder of the search: what a process prints before its trial


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended."""

    kind: str  # FINISHED, STOPPED or FAILED
    record: dict[str, Any] = field(default_factory=dict)  # of a training that finished
    code: int = 0  # exit code of a failure
    message: str = ""
    changed: bool = False  # it failed because code or data changed meanwhile


class TrialProcess:
    """A process that imports TensorFlow, runs one trial and ends."""

    def __init__(self, folder: Path) -> None:
        """Start it; what it prints before its trial goes to a file in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.connection, theirs = Pipe()
        command = [sys.executable, "-m", trial.__name__, str(theirs.fileno()), str(folder), str(os.getpid())]
        with (folder / OUTPUT).open("ab") as stream, process.signals_held():
            self._popen = subprocess.Popen(
                command, env={**os.environ, "PYTHONPATH": layout.python_path()}, stdin=subprocess.DEVNULL,
                stdout=stream, stderr=stream, pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        theirs.close()

    def send(self, message: object) -> None:
        """Send it a message; nothing happens if it has ended, which `received` finds."""
        with suppress(OSError):
            self.connection.send(message)

    def received(self) -> tuple[Any, ...]:
        """Its next message; if it ended without one, a failure."""
        with suppress(EOFError, OSError):
            message: tuple[Any, ...] = self.connection.recv()
            return message
        code = self._popen.wait()
        why = f"a signal ({-code}) ended its process" if code < 0 else f"its process ended with code {code}"
        return trial.FAILED, 1, f"{why}, perhaps because memory ran out; see {trial.LOG} and {OUTPUT}", False

    def end(self) -> None:
        """Let its trial save a checkpoint, and wait until it has ended."""
        with process.signals_held():
            self.connection.close()
            self._popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(GRACE_S)
            self._popen.kill()
            self._popen.wait()


class TrialProcesses:
    """The processes of a search: one that runs a trial, and one that is ready for the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready: TrialProcess | None = None

    def run(
        self,
        task: Task,
        evaluated: Callable[[dict[str, Any], str | None], bool],
        *,
        limit_s: Callable[[], float],
        another: bool,
    ) -> Outcome | None:
        """Run a trial; `evaluated` gets each evaluation and says whether to stop the trial.

        It is interrupted, which gives None, once no seconds are left by `limit_s`. `another`: one may follow.
        """
        running, self._ready = self._ready or TrialProcess(self._folder), None
        try:
            running.send(task)
            while True:
                left_s = limit_s()
                if not running.connection.poll(None if math.isinf(left_s) else max(left_s, 0)):
                    return None
                kind, *content = running.received()
                if kind == trial.STARTED and another:
                    self._ready = TrialProcess(self._folder)
                elif kind == trial.EVALUATED:
                    running.send(evaluated(*content))
                elif kind != trial.STARTED:
                    return _outcome(kind, content)
        finally:
            running.end()

    def close(self) -> None:
        """End the process that is ready."""
        if self._ready:
            self._ready.end()


@contextmanager
def started(folder: Path) -> Iterator[TrialProcesses]:
    """The processes of the search in the block."""
    processes = TrialProcesses(folder)
    try:
        yield processes
    finally:
        processes.close()


def _outcome(kind: str, content: list[Any]) -> Outcome:
    if kind == trial.FINISHED:
        return Outcome(kind=kind, record=content[0])
    if kind == trial.STOPPED:
        return Outcome(kind=kind)
    code, message, changed = content
    return Outcome(kind=kind, code=code, message=message, changed=changed)
