"""A process that has imported TensorFlow once, and forks a process for each trial.

A fork is safe before TensorFlow starts: no device, no thread. Where its import starts threads, as with some
plugins, each trial gets a new process, which imports it again.
"""

import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import psutil

from perennial.base import layout
from perennial.base.errors import PerennialError
from perennial.base.processes import process
from perennial.project.tune import trial
from perennial.project.tune.trial import Task

log = logging.getLogger(__name__)
ENDED = "ended"  # message of the server: the code with which the process of the trial ended
GRACE_S = 30.0  # for the last checkpoint of an interrupted trial
OUTPUT = "server.log"  # in the folder of the search


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended."""

    kind: str  # FINISHED, STOPPED or FAILED
    record: dict[str, Any] = field(default_factory=dict)  # of a training that finished
    code: int = 0  # exit code of a failure
    message: str = ""
    changed: bool = False  # it failed because code or data changed meanwhile


class Server:
    """The process that trials are forked from; it starts with the first trial."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def run(
        self,
        task: Task,
        evaluated: Callable[[dict[str, Any], str | None], bool],
        *,
        limit_s: Callable[[], float],
    ) -> Outcome | None:
        """Run a trial; `evaluated` gets each evaluation and says whether to stop the trial.

        It is interrupted, which gives None, once `limit_s` seconds are left no more.
        """
        connection = self._started()
        connection.send(task)
        running = 0
        try:
            outcome: Outcome | None = None
            while True:
                left_s = limit_s()
                if not connection.poll(None if math.isinf(left_s) else max(left_s, 0)):
                    self._interrupt(running)
                    return None
                kind, *content = self._received(connection)
                if kind == trial.STARTED:
                    running = content[0]
                elif kind == trial.EVALUATED:
                    connection.send(evaluated(*content))
                elif kind == ENDED:
                    return outcome or _killed(content[0], task)
                else:
                    outcome = _outcome(kind, content)
        except BaseException:
            self._interrupt(running)
            raise

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    def _started(self) -> Connection:
        if self._connection is not None and self._process is not None and self._process.poll() is None:
            return self._connection
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        ours, theirs = Pipe()
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), str(self._folder)]
        with (self._folder / OUTPUT).open("ab") as stream, process.signals_held():
            self._process = subprocess.Popen(
                command, env={**os.environ, "PYTHONPATH": layout.python_path()}, stdin=subprocess.DEVNULL,
                stdout=stream, stderr=stream, pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
            self._connection = ours
        theirs.close()
        return ours

    def _received(self, connection: Connection) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = connection.recv()
        except (EOFError, OSError):
            raise PerennialError(
                f"the process that starts trials ended; its messages are in {self._folder / OUTPUT}; "
                "run `perennial tune` again to go on"
            ) from None
        return message

    def _interrupt(self, running: int) -> None:
        """Let the trial save a checkpoint and end, and wait until it has."""
        connection = self._connection
        with process.signals_held():
            for number in (SIGTERM, SIGKILL):
                if running:
                    with suppress(ProcessLookupError):
                        os.kill(running, number)
                with suppress(EOFError, OSError):
                    while connection is not None and running and connection.poll(GRACE_S):
                        if connection.recv()[0] == ENDED:
                            return
            self.close()


@contextmanager
def started(folder: Path) -> Iterator[Server]:
    """A server for the block; its messages go to a file in the folder."""
    server = Server(folder)
    try:
        yield server
    finally:
        server.close()


def _outcome(kind: str, content: list[Any]) -> Outcome:
    if kind == trial.FINISHED:
        return Outcome(kind=kind, record=content[0])
    if kind == trial.STOPPED:
        return Outcome(kind=kind)
    code, message, changed = content
    return Outcome(kind=kind, code=code, message=message, changed=changed)


def _killed(code: int, task: Task) -> Outcome:
    why = f"a signal ({-code}) ended its process" if code < 0 else f"its process ended with code {code}"
    text = f"{why}, perhaps because memory ran out; its messages are in {task.folder / trial.LOG}"
    return Outcome(kind=trial.FAILED, code=1, message=text)


def serve(search: Connection, folder: Path) -> None:
    """Start each trial that the search sends, until it closes the connection."""
    run = trial.import_code(folder)
    while True:
        try:
            task = search.recv()
        except EOFError:
            return
        if not _may_fork():
            run(task, search)
            search.send((ENDED, 0))
            os._exit(0)  # TensorFlow runs here now
        started = os.fork()
        if not started:
            _in_child(run, task, search)
        _, status = os.waitpid(started, 0)
        search.send((ENDED, os.waitstatus_to_exitcode(status)))


def _may_fork() -> bool:
    """Whether this process has one thread: locks that others hold would stay locked in the child."""
    threads: int = psutil.Process().num_threads()
    return threads == 1


def _in_child(run: Callable[[Task, Connection], None], task: Task, search: Connection) -> None:
    code = 1
    try:
        run(task, search)
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)  # without the clean-up of the server, whose copy this is


if __name__ == "__main__":
    with suppress(BrokenPipeError, ConnectionResetError):  # the search was killed
        serve(Connection(int(sys.argv[1])), Path(sys.argv[2]))
