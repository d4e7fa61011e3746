"""Calls of the command `perennial`, with this Python and the code of the checkout.

Each is a process of its own. In a run without a server, the short ones are forks of it: all import the same
modules, which takes most of their time. With a server, this process has threads, which a fork would not have.
"""

import gc
import importlib
import io
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from perennial.base import failures
from perennial.base.dvc.repro import GRACE_S
from perennial.base.errors import Failure
from perennial.orchestration.engine import this_run
from perennial.orchestration.work.dvc_repo import stage_environment
from perennial.orchestration.work.stage_failures import StageFailed

POLL_S = 0.05
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
    """Run a command to its end, however it ends; pass each line of its log to `log` as it comes.

    If this is interrupted, the command has 20 s to save.
    """
    start = _fork if arguments[0] in SHORT and not this_run.has_server() else _spawn
    lines: list[str] = []
    # The output goes to a file, because the log is read first, and a full pipe would block the command.
    with (
        tempfile.TemporaryDirectory(prefix="perennial-") as folder,
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
    ):
        failure = Path(folder, "failure.json")
        variables = {**stage_environment(), failures.VARIABLE: str(failure)}
        reader, writer = os.pipe()
        with open(reader, encoding="utf-8", errors="replace") as errors:  # noqa: PTH123 - of a pipe
            process = start(arguments, variables, output.fileno(), writer)
            os.close(writer)
            try:
                for line in errors:
                    if text := line.rstrip():
                        lines.append(text)
                        log(text)
                code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            except BaseException:
                _end(process)
                raise
        output.seek(0)
        kind = Failure(json.loads(failure.read_bytes())["kind"]) if failure.exists() else failures.of_code(code)
        return Finished(exit_code=max(code, 0) or int(code < 0), output=output.read(), log=lines, kind=kind)


def _spawn(arguments: Sequence[str], variables: Mapping[str, str], output: int, errors: int) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, errors, 2)]
    command = [sys.executable, "-m", "perennial", *arguments]
    # Python ignores SIGPIPE, and its children would, too.
    return os.posix_spawn(sys.executable, command, variables, file_actions=actions, setsigdef=[signal.SIGPIPE])


def _fork(arguments: Sequence[str], variables: Mapping[str, str], output: int, errors: int) -> int:
    for name in IMPORTED:
        importlib.import_module(name)
    process = os.fork()
    if not process:
        try:
            _become_perennial(arguments, variables, output, errors)
        finally:
            os._exit(1)  # not the rest of the run, whatever happens
    return process


def _become_perennial(
    arguments: Sequence[str], variables: Mapping[str, str], output: int, errors: int
) -> NoReturn:
    os.dup2(output, 1)
    os.dup2(errors, 2)
    gc.freeze()  # else it might close a file by the number of one that is closed now
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # locks, too: they are not this process's
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(each, "w"), "utf-8", write_through=True) for each in (1, 2)
    )
    logging.getLogger().handlers.clear()
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["perennial", *arguments]
    code: object = 1
    try:
        importlib.import_module("perennial.__main__").main()
    except SystemExit as ended:
        code = ended.code
    os._exit(code if isinstance(code, int) else int(code is not None))


def _end(process: int) -> None:
    """Let a command save its work, for 20 s at most."""
    deadline = time.monotonic() + GRACE_S
    with suppress(ChildProcessError, ProcessLookupError):  # it has ended
        os.kill(process, signal.SIGTERM)
        while not os.waitpid(process, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
            time.sleep(POLL_S)
