"""Commands of DVC that run stages: their variables, their output line by line, and how a signal ends them."""

import logging
import os
import re
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial.base import documents, layout, limits
from perennial.base.dvc import dvc_program
from perennial.base.layout import Project
from perennial.base.processes.process import STARTED_BY
from perennial.base.processes.programs import STDOUT, Program

log = logging.getLogger(__name__)
GRACE_S = limits.STAGE_GRACE_S
KILLED = "the stage did not end within %.0f s and was killed; complete files and checkpoints are kept"
KEPT_LINES = 50  # of the output, for the message of a failure
RUNNING = re.compile(r"^Running stage '(.+)':$")  # DVC's line when it starts one


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command of DVC ended."""

    code: int  # DVC's: 255 for every failure of a stage
    ran: set[str]  # the stages that it started
    lines: list[str]  # the last of its output, without empty ones
    failure: Mapping[str, Any] | None  # as the stage that failed wrote it: `code`, `message`, `changed`


def environment(python: Path, checkout: Path) -> dict[str, str]:
    """The variables of a stage: a Python's programs first on the PATH, and the code of a checkout."""
    return {
        **dvc_program.environment(),
        **search_paths(python, checkout),
        "PYTHONUNBUFFERED": "1",
        STARTED_BY: str(os.getpid()),
    }


def search_paths(python: Path, checkout: Path) -> dict[str, str]:
    """PATH and PYTHONPATH of programs in a checkout."""
    programs = os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath)))
    return {"PATH": programs, "PYTHONPATH": python_path(python, checkout)}


def python_path(python: Path, checkout: Path) -> str:
    """PYTHONPATH in a checkout: its top folder, and its source of perennial, or the one that runs here."""
    root = Project.find(checkout).root
    found, same = layout.source(root), python == Path(sys.executable)
    code = str(found.parent) if found else layout.running_source() if same else None
    return os.pathsep.join(filter(None, (str(root), code)))


def run(
    python: Path,
    *arguments: str,
    folder: Path,
    variables: Mapping[str, str],
    work: Path,
    to: Callable[[str], None],
) -> Ended:
    """Run `dvc ARGUMENTS` to the end, and pass each line `to` a function; stages note failures in `work`."""
    failure = work / "failure.json"
    failure.unlink(missing_ok=True)
    ran, last = set[str](), deque[str](maxlen=KEPT_LINES)

    def take(line: str) -> None:
        if text := line.strip():
            ran.update(RUNNING.findall(text))
            last.append(text)
            to(text)

    command = [str(python), "-m", "dvc", *arguments]
    with (
        Program(command, cwd=folder, env=variables, stderr=STDOUT, to=take, grace_s=GRACE_S) as program,
        stopping(program),
    ):
        code = program.wait() or 0
    said = documents.read_json(failure) if code and failure.is_file() else None
    return Ended(code=code, ran=ran, lines=list(last), failure=said)


@contextmanager
def stopping(program: Program) -> Iterator[None]:
    """Stop a program if the block fails or is interrupted: its stage has time to save."""
    try:
        yield
    except BaseException:
        log.warning("stopping the stage")
        at_main = threading.current_thread() is threading.main_thread()
        # Several processes may send SIGTERM, and a second one would abort the clean-up.
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN) if at_main else None
        if not program.stop():
            log.warning(KILLED, GRACE_S)
        if at_main:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
        raise
