"""What not every machine can: a clock of a trial's own (libfaketime), a trace of its writes (strace)."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from perennial.rehearsal.programs import Program
from perennial.rehearsal.trial import Trial

FAKETIME = "libfaketimeMT.so.1"
FOLDERS = ("/usr/lib", "/usr/local/lib", "/usr/lib64")
DAY_S = 86400
CALLS = "fsync,fdatasync,sync_file_range,rename,renameat,renameat2,write,pwrite64,writev,ftruncate"
# `write(3</a/b>, ...` and `rename("/a", "/b")`; a call that another thread interrupts is in two lines.
ON_FILE = re.compile(r"^(?:\d+ +)?(\w+)\(\d+<(/[^>]*)>")
RENAME = re.compile(r'^(?:\d+ +)?renam\w+\((?:[^"]*)"([^"]*)", (?:[^"]*)"([^"]*)"')
FLUSHES = ("fsync", "fdatasync")


@cache
def _faketime() -> Path | None:
    own = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    roots = [*own, *(str(path) for folder in FOLDERS for path in Path(folder).glob("**/faketime"))]
    return next((Path(root, FAKETIME) for root in roots if Path(root, FAKETIME).is_file()), None)


def no_clock() -> str | None:
    """Why a trial cannot have its own clock; None if it can."""
    return None if _faketime() else "needs libfaketime (Debian: libfaketime)"


@contextmanager
def own_clock(folder: Path) -> Iterator[tuple[dict[str, str], Callable[[float], None]]]:
    """Variables that give programs a clock of their own, and a function that turns it by days."""
    file = folder / "clock"
    file.write_text("+0\n", encoding="utf-8")
    variables = {
        "LD_PRELOAD": str(_faketime()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }

    def turn(days: float) -> None:
        file.write_text(f"{days * DAY_S:+.0f}\n", encoding="utf-8")

    yield variables, turn


@cache
def no_trace() -> str | None:
    """Why writes cannot be followed; None if they can."""
    if shutil.which("strace") is None:
        return "needs strace"
    allowed = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return "strace may not trace here" if allowed.returncode else None


def start_traced(trial: Trial, stage: str, trace: Path) -> Program:
    """Start a stage under strace, which writes its writes, flushes and renames to a file."""
    environment = trial.project.environment(trial.folder, trial.checkout)
    strace = ["strace", "-f", "-qq", "-y", "-s", "0", "--seccomp-bpf", "-e", f"trace={CALLS}", "-o", str(trace)]
    return Program([*strace, sys.executable, "-m", "perennial", stage], trial.checkout, environment)


def unsynced(trace: Path, outputs: Sequence[Path], folder: Path) -> list[Path]:
    """The files among `outputs` that were not flushed after their last write, or whose rename was not.

    A rename is on the disk once the folder above was flushed. Relative paths are those of `folder`.
    """
    written: dict[str, None] = {}  # files whose content may be lost
    renamed: dict[str, None] = {}  # folders in which a name may be lost
    for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
        if found := ON_FILE.match(line):
            call, path = found.groups()
            if call in FLUSHES:
                written.pop(path, None)
                renamed.pop(path, None)
            else:
                written[path] = None
        elif (found := RENAME.match(line)) and " = -1 " not in line:
            source, target = (str(folder / name) for name in found.groups())
            written = {_moved(each, source, target): None for each in written}
            renamed = {_moved(each, source, target): None for each in renamed}
            renamed[str(Path(target).parent)] = None
    return [file for file in outputs if str(file) in written or str(file.parent) in renamed]


def _moved(path: str, source: str, target: str) -> str:
    """The name of a path once one above it, or itself, was renamed."""
    return target + path[len(source) :] if path == source or path.startswith(f"{source}/") else path
