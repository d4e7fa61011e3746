"""Calls of the command `perennial`, with this Python and the code of the checkout.

Each is a process of its own. In a run without a server, the short ones are forks of it: all import the same
modules, which takes most of their time. With a server, this process has threads, which a fork would not have.
"""

import gc
import importlib
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import FileIO, TextIOWrapper
from pathlib import Path
from typing import NoReturn

from perennial.base import failures
from perennial.base.dvc.repro import GRACE_S
from perennial.base.errors import Failure
from perennial.base.processes import programs
from perennial.orchestration.engine import this_run
from perennial.orchestration.work.dvc_repo import stage_environment
from perennial.orchestration.work.stage_failures import StageFailed, of_signal

POLL_S = 0.01  # for the end of a fork
SHORT = ("config", "pin", "report", "runs")
IMPORTED = (
    "perennial.cli", "perennial.data.datasets", "perennial.data.sources.pin", "scipy.special",
    "perennial.release.registry.current_champion", "perennial.reports.report.summary",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a command printed and how it ended; `exit_code` is 1 if a signal ended it."""

    exit_code: int
    output: str
    log: list[str]  # the lines of stderr
    kind: Failure  # of its failure, if it failed


def perennial(*arguments: str) -> str:
    """Run a command; returns what it prints."""
    done = call_perennial(*arguments)
    if done.exit_code:
        raise StageFailed(arguments[0], done.exit_code, "\n".join(done.log), done.kind)
    return done.output


def call_perennial(
    *arguments: str,
    log: Callable[[str], None] = lambda line: None,  # noqa: ARG005 - the default drops each line
) -> Finished:
    """Run a command to its end, however it ends; pass each line of its log to `log` as it comes."""
    # If this is interrupted, the command has 20 s to save.
    lines: list[str] = []

    def take(line: str) -> None:
        if text := line.rstrip():
            lines.append(text)
            log(text)

    command: programs.Command = [sys.executable, "-m", "perennial", *arguments]
    if arguments[0] in SHORT and not this_run.has_server():
        for name in IMPORTED if arguments[0] != "config" else ():  # a typo is answered before all else
            importlib.import_module(name)
        command = partial(Fork, partial(_main, arguments))
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        failure = Path(folder, "failure.json")
        variables = {**stage_environment(), failures.VARIABLE: str(failure)}
        done = programs.run(command, limit_s=None, env=variables, log=take, grace_s=GRACE_S)
        code = done.code
        kind = Failure(json.loads(failure.read_bytes())["kind"]) if failure.exists() else failures.of_code(code)
    said = [*filter(None, [of_signal(code)]), *lines]
    return Finished(exit_code=max(code, 0) or int(code < 0), output=done.output, log=said, kind=kind)


def _main(arguments: Sequence[str]) -> None:
    logging.getLogger().handlers.clear()
    sys.argv = ["perennial", *arguments]
    importlib.import_module("perennial.__main__").main()


class Fork:
    """A fork of this process that calls a function and ends; like a Popen, as far as it is used here."""

    stdin = None

    def __init__(self, function: Callable[[], object], variables: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        pipes = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                _become(function, variables, *(writer for _, writer in pipes))
            finally:
                os._exit(1)  # not the rest of this program, whatever happens
        for _, writer in pipes:
            os.close(writer)
        self.stdout, self.stderr = (FileIO(reader) for reader, _ in pipes)

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        if self.returncode is None:
            process, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if process else None
        return self.returncode

    def wait(self, timeout: float = math.inf) -> int:
        """Wait for its end; raises TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing, if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _become(function: Callable[[], object], variables: Mapping[str, str], output: int, errors: int) -> NoReturn:
    """Make a fork look like a program that has just started, and call the function."""
    os.setsid()
    gc.freeze()  # else it might close a file by the number of one that is closed now
    for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
        os.dup2(opened, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # locks, too: they are not this process's
    sys.stdout, sys.stderr = (TextIOWrapper(FileIO(each, "w"), "utf-8", write_through=True) for each in (1, 2))
    os.environ.clear()
    os.environ.update(variables)
    code: object = None
    try:
        function()
    except SystemExit as ended:
        code = ended.code
    os._exit(code if isinstance(code, int) else int(code is not None))
