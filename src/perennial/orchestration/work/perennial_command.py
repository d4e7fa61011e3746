"""Calls of the command `perennial`, with this Python and the code of the checkout."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perennial.base import failures
from perennial.base.dvc.repro import GRACE_S
from perennial.base.errors import Failure
from perennial.orchestration.work.dvc_repo import stage_environment
from perennial.orchestration.work.stage_failures import StageFailed


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
    command = [sys.executable, "-m", "perennial", *arguments]
    lines: list[str] = []
    # The output goes to a file, because the log is read first, and a full pipe would block the command.
    with (
        tempfile.TemporaryDirectory(prefix="perennial-") as folder,
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        subprocess.Popen(
            command,
            env={**stage_environment(), failures.VARIABLE: str(failure := Path(folder, "failure.json"))},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            for line in process.stderr or ():
                if text := line.rstrip():
                    lines.append(text)
                    log(text)
            code = process.wait()
        except BaseException:
            _end(process)
            raise
        output.seek(0)
        kind = Failure(json.loads(failure.read_bytes())["kind"]) if failure.exists() else failures.of_code(code)
        return Finished(exit_code=max(code, 0) or int(code < 0), output=output.read(), log=lines, kind=kind)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
