"""The one door to DVC: it alone decides what is stale, and every stage is run through it."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import dvc.api
from dvc.repo import Repo

Outcome = Literal["ran", "restored", "up to date"]
GRACE_S = 15  # between asking a stage to end and ending it
RESTORED = "is cached - skipping run"
# What DVC advises after each stage; the flow is the one to act on it.
ADVICE = ("To track the changes with git", "git add dvc.lock", "To enable auto staging",
          "dvc config core.autostage", "Use `dvc push`", "Updating lock", "Generating lock")  # fmt: skip


class StageFailed(Exception):
    """A stage ended with an error, or DVC could not run it.

    `exit_code` is the stage's own (2 configuration, 3 data, 4 quality, 75 interrupted, 1 anything else).
    """

    def __init__(self, stage: str, exit_code: int, message: str) -> None:
        first_line, _, _ = message.partition("\n")
        super().__init__(f"{stage} ended with exit code {exit_code}: {first_line}")
        self.stage, self.exit_code, self.message = stage, exit_code, message


def reproduce(stage: str, log: Callable[[str], None]) -> Outcome:
    """Brings a stage up to date if DVC finds it stale; its lines go to `log` as they come.

    Raises:
        StageFailed: it ended with an error. Whatever ends this call, no process of the stage is left.
    """
    failure = Path(parameters()["paths"]["work"]) / "failure.json"
    failure.unlink(missing_ok=True)
    # In this process: starting `dvc` only to hear that nothing changed costs a second a stage.
    with Repo() as repo:
        if not repo.status([stage]):
            return "up to date"
    outcome: Outcome = "ran"
    last_lines: list[str] = []
    command = [sys.executable, "-m", "dvc", "repro", "--single-item", stage]
    # A session of its own: one signal reaches DVC, its shell and the stage.
    with subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                if RESTORED in line:
                    outcome = "restored"
                if text := line.strip():
                    last_lines = [*last_lines[-9:], text]
                    if not text.startswith(ADVICE):
                        log(text)
            code = process.wait()
        except BaseException:
            _end(process)
            raise
    if code:
        raise _failure(stage, failure, "\n".join(last_lines))
    return outcome


def parameters() -> dict[str, Any]:
    """The parameters of the checkout, read in this process."""
    shown: dict[str, Any] = dvc.api.params_show("params.yaml")
    return shown


def environment() -> dict[str, str]:
    """The environment of a stage: programs beside this Python first, and the code of this checkout."""
    bin_folder = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join((bin_folder, os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": str(Path.cwd() / "src"),
        "PYTHONUNBUFFERED": "1",
        "PERENNIAL_STARTED_BY": str(os.getpid()),
    }


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process and all that it started, politely first so that a stage can clean up."""
    logging.getLogger(__name__).warning("ending the stage")
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _failure(stage: str, file: Path, said: str) -> StageFailed:
    """What the stage left in failure.json, else what DVC said of it; DVC's own exit code is always 255."""
    if file.exists():
        failure = json.loads(file.read_text(encoding="utf-8"))
        return StageFailed(stage, failure["code"], failure["message"])
    exited = re.search(r"exited with (\d+)", said)
    return StageFailed(stage, int(exited[1]) if exited else 1, said)
