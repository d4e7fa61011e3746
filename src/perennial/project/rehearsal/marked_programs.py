"""Programs of a rehearsal, with a mark in their environment that identifies any process they leave behind.

If the machine supports it, they have their own clock (libfaketime), or their writes are traced (strace).
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

from perennial.base.errors import PerennialError
from perennial.base.layout import python_path

WATCHER = "perennial.project.rehearsal.marked_programs"
MARK = "PERENNIAL_REHEARSAL"  # in the environment: the folder of the trial
POLL_S = 0.05
LIMIT_S = 900.0  # for a command; a busy machine takes long
OUTPUT_S = 2.0  # time for the last lines of an ended program whose children still hold the pipe
CAUGHT = re.compile(r"^SigCgt:\s*([0-9a-f]+)", re.MULTILINE)
FAKETIME = "libfaketimeMT.so.1"
FOLDERS = ("/usr/lib", "/usr/local/lib", "/usr/lib64")
DAY_S = 86400
CALLS = "fsync,fdatasync,sync_file_range,rename,renameat,renameat2,write,pwrite64,writev,ftruncate"
# `write(3</a/b>, ...` and `rename("/a", "/b")`; a call that another thread interrupts is in two lines.
ON_FILE = re.compile(r"^(?:\d+ +)?(\w+)\(\d+<(/[^>]*)>")
RENAME = re.compile(r'^(?:\d+ +)?renam\w+\((?:[^"]*)"([^"]*)", (?:[^"]*)"([^"]*)"')
FLUSHES = ("fsync", "fdatasync")


def chance(seed: object) -> random.Random:
    """A seeded random generator, so that a rehearsal can be repeated."""
    return random.Random(str(seed))  # noqa: S311 - not a secret


class TooLate(Exception):
    """A fault came too late: its target had ended or never started. It does not count as a try."""


class Ended(NamedTuple):
    """How a program ended."""

    code: int  # minus the number of a signal
    output: str  # stdout and stderr

    def last_lines(self, count: int = 3) -> str:
        """The last lines of the output, joined into one."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return f"exit code {self.code}: {' | '.join(lines[-count:])}"


class Program:
    """A running program, whose output is collected."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.started = time.monotonic()
        self._lines: list[bytes] = []
        # A separate session: Ctrl-C in the terminal ends the rehearsal, which then ends its programs.
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self.process.stdout:
            with self.process.stdout as stream:
                self._lines.extend(stream)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def wait(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for its end."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            kill_group(self.pid)
            self.process.wait()
            raise PerennialError(f"{self.process.args!r} did not end within {limit_s:.0f} s") from None
        self._reader.join(OUTPUT_S)
        return Ended(code, b"".join(list(self._lines)).decode("utf-8", "replace"))


def marked(folder: Path) -> dict[int, list[str]]:
    """The command lines of the running processes of a trial and of those below it, by process ID."""
    mark, found = str(folder), {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or is another user's
            place = process.environ().get(MARK, "")
            if place == mark or place.startswith(mark + os.sep):
                found[process.pid] = process.cmdline()
    found.pop(os.getpid(), None)
    return found


def find(folder: Path, *words: str) -> int | None:
    """Find the process of a trial whose command line contains these consecutive words."""
    for number, line in marked(folder).items():
        if any(tuple(line[at : at + len(words)]) == words for at in range(len(line))):
            return number
    return None


def wait_for(condition: Callable[[], int | None], program: Program | None, limit_s: float = LIMIT_S) -> int:
    """Wait until a function returns a process."""
    deadline = time.monotonic() + limit_s
    while (found := condition()) is None:
        if program is not None and program.ended:
            raise TooLate
        if time.monotonic() > deadline:
            raise PerennialError(f"nothing happened within {limit_s:.0f} s")
        time.sleep(POLL_S)
    return found


def catches(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        found = CAUGHT.search(Path(f"/proc/{process}/status").read_text(encoding="utf-8"))
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def send(process: int, number: signal.Signals) -> None:
    """Send a signal."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        raise TooLate from None


def kill_group(leader: int) -> None:
    """Kill the processes of a session, where there are any left."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def kill_marked(folder: Path) -> None:
    """Kill every process of a trial."""
    while left := marked(folder):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(POLL_S)


@contextmanager
def nothing_outlives(base: Path) -> Iterator[None]:
    """Kill all programs of a rehearsal at the end of the block, even if this process is killed in it."""
    command = [sys.executable, "-m", WATCHER, str(base)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True):
        try:
            yield
        finally:
            kill_marked(base)


@cache
def _faketime() -> Path | None:
    own = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    roots = [*own, *(str(path) for folder in FOLDERS for path in Path(folder).glob("**/faketime"))]
    return next((Path(root, FAKETIME) for root in roots if Path(root, FAKETIME).is_file()), None)


def no_clock() -> str | None:
    """The reason why a trial cannot have its own clock; None if it can."""
    return None if _faketime() else "needs libfaketime (Debian: libfaketime)"


@contextmanager
def own_clock(folder: Path) -> Iterator[tuple[dict[str, str], Callable[[float], None]]]:
    """Yield variables that give programs their own clock, and a function that moves it by days."""
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
    """The reason why writes cannot be traced; None if they can."""
    if shutil.which("strace") is None:
        return "needs strace"
    allowed = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return "strace may not trace here" if allowed.returncode else None


def strace(trace: Path) -> list[str]:
    """The command prefix that logs another command's writes, flushes and renames to a file."""
    return ["strace", "-f", "-qq", "-y", "-s", "0", "--seccomp-bpf", "-e", f"trace={CALLS}", "-o", str(trace)]


def unsynced(trace: Path, outputs: Sequence[Path], folder: Path) -> list[Path]:
    """Find the `outputs` that were not flushed after their last write, or whose rename was not flushed.

    A rename is on the disk once its parent folder was flushed. Relative paths start at `folder`.
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
    """The new name of a path after it or one of its parents was renamed."""
    return target + path[len(source) :] if path == source or path.startswith(f"{source}/") else path


if __name__ == "__main__":
    sys.stdin.read()  # until the rehearsal has ended
    kill_marked(Path(sys.argv[1]))
