"""The one door to DVC: it alone decides what is stale, and every stage is run through it."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import dvc.api
from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.repo import Repo

Outcome = Literal["ran", "restored", "up to date"]
# Between asking a stage to end and ending it. A stage without its starter ends itself a little earlier.
GRACE_S = 30
BAD_DATA = 3  # the exit code of a stage that cannot use what it is given
KEPT_LINES = 50  # the last ones, which tell of a failure
RUNNING, RESTORED = "Running stage", "is cached - skipping run"
BUSY = ("is busy, it is being blocked by", "Unable to acquire lock")
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


class Refused(StageFailed):
    """DVC did not start the stage, and would not if it were asked again."""


def reproduce(stage: str, log: Callable[[str], None]) -> Outcome:
    """Brings a stage up to date if DVC finds it stale; its lines go to `log` as they come.

    Raises:
        StageFailed: it ended with an error. Whatever ends this call, no process of the stage is left.
    """
    with _telling(stage), Repo() as repo:
        failure = Path(parameters()["paths"]["work"]) / "failure.json"
        failure.unlink(missing_ok=True)
        # In this process: starting `dvc` only to hear that nothing changed costs a second a stage.
        changes = repo.status([stage])
    if not changes:
        return "up to date"
    _refuse_missing(stage, changes)
    outcome: Outcome = "up to date"
    last_lines: deque[str] = deque(maxlen=KEPT_LINES)
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
                if line.startswith(RUNNING):
                    outcome = "ran"
                elif RESTORED in line:
                    outcome = "restored"
                if text := line.strip():
                    last_lines.append(text)
                    if not text.startswith(ADVICE):
                        log(text)
            code = process.wait()
        except BaseException:
            _end(process, log)
            raise
    if code:
        raise _failure(stage, failure, last_lines, started=outcome != "up to date")
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


@contextmanager
def _telling(stage: str) -> Iterator[None]:
    """Makes what DVC raises in this process the failure of a stage, told in lines."""
    try:
        yield
    except LockError as error:
        told = f"another DVC works in this checkout; wait for it or end it, then run this again: {error}"
        raise StageFailed(stage, 1, told) from error
    except DvcException as error:
        raise Refused(stage, 1, f"DVC refuses: {error}; `dvc status {stage}` tells more") from error
    except OSError as error:
        raise StageFailed(stage, 1, f"DVC cannot look at what {stage} depends on: {error}") from error


def _refuse_missing(stage: str, changes: Mapping[str, Sequence[Any]]) -> None:
    """Refuses what DVC would, but before it removes the outputs, and in words that help."""
    kinds = [kind for each in changes.values() for kind in each if isinstance(kind, dict)]
    found = [change for kind in kinds for change in kind.get("changed deps", {}).items()]
    if missing := [path for path, how in found if how == "deleted"]:
        raise StageFailed(
            stage,
            BAD_DATA,
            f"{stage} depends on {', '.join(missing)}, which does not exist; "
            "put it there, or correct its name in params.yaml; nothing was changed",
        )


def _end(process: subprocess.Popen[str], log: Callable[[str], None]) -> None:
    """Ends a process and all that it started, politely first so that a stage can save what it has done."""
    logging.getLogger(__name__).warning("ending the stage")
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    # DVC ends at once. The pipe stays open until the last process has ended that DVC started.
    with suppress(subprocess.TimeoutExpired):
        said, _ = process.communicate(timeout=GRACE_S)
        for line in said.splitlines():
            log(line)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _failure(stage: str, file: Path, lines: Sequence[str], *, started: bool) -> StageFailed:
    """What the stage left in failure.json, else what it or DVC said; DVC's own exit code is always 255."""
    if file.exists():
        failure = json.loads(file.read_text(encoding="utf-8"))
        return StageFailed(stage, failure["code"], failure["message"])
    words = (f"perennial {stage}: ", "ERROR: ")
    first = next((n for word in words for n, line in enumerate(lines) if line.startswith(word)), 0)
    said = "\n".join(list(lines)[first:])
    if not started and not any(sign in said for sign in BUSY):
        return Refused(stage, 1, said)
    exited = re.search(r"exited with (\d+)", said)
    return StageFailed(stage, int(exited[1]) if exited else 1, said)
