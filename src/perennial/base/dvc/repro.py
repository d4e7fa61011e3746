"""Commands of DVC that run stages: their variables, their output line by line, and how a signal ends them."""

import logging
import math
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

from perennial.base import documents, layout
from perennial.base.dvc import dvc_program
from perennial.base.layout import Project
from perennial.base.processes.process import STARTED_BY
from perennial.base.processes.programs import STDOUT, Program

log = logging.getLogger(__name__)
# Between SIGTERM and SIGKILL of a stage. Prefect and Kubernetes kill the flow 30 s after they signal it.
GRACE_S = 20.0
KEPT_LINES = 50  # of the output, for the message of a failure
# DVC's lines about a stage: it starts its command, or finds the result in a cache.
RUNNING = re.compile(r"^Running stage '(.+)':$")
RESTORED = re.compile(r"^Stage '(.+)' is cached - skipping run")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command of DVC ended."""

    code: int  # DVC's: 255 for every failure of a stage
    ran: set[str]  # the stages that it started
    restored: set[str]  # those that it found in a cache
    lines: list[str]  # the last of its output, without empty ones
    failure: Mapping[str, Any] | None  # as the stage that failed wrote it: `code`, `message`, `changed`


def environment(python: Path, checkout: Path) -> dict[str, str]:
    """The variables of a stage: a Python's programs first on the PATH, and the code of a checkout."""
    return {
        **dvc_program.environment(),
        "PATH": os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": python_path(python, checkout),
        "PYTHONUNBUFFERED": "1",
        STARTED_BY: str(os.getpid()),
    }


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
    grace_s: float = GRACE_S,
) -> Ended:
    """Run `dvc ARGUMENTS` to the end, and pass each line `to` a function; stages note failures in `work`."""
    failure = work / "failure.json"
    failure.unlink(missing_ok=True)
    ran, restored, last = set[str](), set[str](), deque[str](maxlen=KEPT_LINES)

    def take(line: str) -> None:
        if text := line.strip():
            ran.update(RUNNING.findall(text))
            restored.update(RESTORED.findall(text))
            last.append(text)
            to(text)

    command = [str(python), "-m", "dvc", *arguments]
    with Program(command, cwd=folder, env=variables, stderr=STDOUT, to=take, grace_s=grace_s) as program:
        try:
            code = program.wait(math.inf) or 0
        except BaseException:
            with _sigterm_ignored():
                log.warning("stopping the stage")
                if not program.stop():
                    kept = "complete files and checkpoints are kept"
                    log.warning("the stage did not end within %.0f s and was killed; %s", grace_s, kept)
            raise
    said = documents.read_json(failure) if code and failure.is_file() else None
    return Ended(code=code, ran=ran, restored=restored, lines=list(last), failure=said)


@contextmanager
def _sigterm_ignored() -> Iterator[None]:
    """Ignore SIGTERM in the block: several processes may send it, and a second one would abort the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)
