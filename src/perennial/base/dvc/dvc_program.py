"""Calls of the DVC program, without analytics, prompts or passwords in messages. Flows use its Python API."""

import fcntl
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from perennial.base import documents, limits
from perennial.base.errors import Failure, PerennialError, redacted
from perennial.base.processes import programs
from perennial.base.processes.programs import Finished
from perennial.base.storage import s3_errors

LINES = 3  # of a message
BROKEN_LOCKS = "Unable to read RWLock-file"
NOISE = "https://dvc.org/support"  # a line below every unexpected error


class DvcError(PerennialError):
    """DVC refused or failed."""


def environment() -> dict[str, str]:
    """The variables of a DVC that perennial starts."""
    return {**s3_errors.CHECKSUM_SETTINGS, **os.environ, "DVC_NO_ANALYTICS": "1"}


def run(
    *arguments: str,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    limit_s: float = limits.DVC_S,
) -> str:
    """Run a DVC command and return its output; not with `--quiet`, which would hide why it fails."""

    def call() -> Finished:
        command = [sys.executable, "-m", "dvc", *arguments]
        return programs.run(command, cwd=folder, env=variables or environment(), limit_s=limit_s)

    try:
        done = call()
        if done.code and BROKEN_LOCKS in done.errors:
            remove_broken_locks(folder or root())
            done = call()
    except programs.TimedOut as error:
        raise DvcError(str(programs.TimedOut(f"dvc {arguments[0]}", error.limit_s, error.said))) from None
    if done.code:
        lines = [line for line in done.errors.splitlines() if line.strip() and NOISE not in line]
        message = redacted(" ".join(lines[-LINES:])) or f"exit code {done.code}"
        hint = s3_errors.remedy("\n".join(lines))
        failed = f"`dvc {arguments[0]}` failed: {message}{f'; {hint}' if hint else ''}"
        raise DvcError(failed, kind=Failure.REFUSED if hint else None)
    return done.output


def remove_broken_locks(folder: Path) -> None:
    """Remove the list of locks that a full disk or a kill left half written, on which every later DVC fails."""
    file = folder / ".dvc" / "tmp" / "rwlock"
    with suppress(OSError):
        if not documents.json_object(file.read_bytes()):  # or another DVC is writing it, with the guard
            with file.with_name("rwlock.lock").open("ab") as guard:
                fcntl.flock(guard, fcntl.LOCK_EX)
                if not documents.json_object(file.read_bytes()):
                    file.unlink()


def root() -> Path:
    """The folder that holds `.dvc`: the working directory or one above it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".dvc").is_dir():
            return folder
    raise DvcError(f"{here} is in no DVC repository; `dvc init` makes one")
