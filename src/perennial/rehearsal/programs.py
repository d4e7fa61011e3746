"""Programs of a rehearsal: started with a mark in their environment, by which all that they leave is found."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from perennial.errors import PerennialError
from perennial.runtime.child import python_path

WATCHER = "perennial.rehearsal.programs"
MARK = "PERENNIAL_REHEARSAL"  # in the environment: the folder of the trial
POLL_S = 0.05
LIMIT_S = 900.0  # for a command; a busy machine takes long
OUTPUT_S = 2.0  # after its end, for the last lines of a program whose children still hold the pipe
CAUGHT = re.compile(r"^SigCgt:\s*([0-9a-f]+)", re.MULTILINE)


def chance(seed: object) -> random.Random:
    """Random numbers by which a rehearsal can be repeated."""
    return random.Random(str(seed))  # noqa: S311 - not a secret


class TooLate(Exception):
    """A fault did not hit: what it was for had ended, or never began. Not a try."""


class Ended(NamedTuple):
    """How a program ended."""

    code: int  # minus the number of a signal
    output: str  # stdout and stderr

    def last_lines(self, count: int = 3) -> str:
        """The last lines of the output, in one."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return f"exit code {self.code}: {' | '.join(lines[-count:])}"


class Program:
    """A running program, whose output is collected."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.started = time.monotonic()
        self._lines: list[bytes] = []
        # A session of its own: Ctrl-C in the terminal ends the rehearsal, which then ends its programs.
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
        """Wait for its end.

        Raises:
            PerennialError: it did not end in time, and was killed.
        """
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            kill_group(self.pid)
            self.process.wait()
            raise PerennialError(f"{self.process.args!r} did not end within {limit_s:.0f} s") from None
        self._reader.join(OUTPUT_S)
        return Ended(code, b"".join(list(self._lines)).decode("utf-8", "replace"))


def marked(folder: Path) -> dict[int, list[str]]:
    """The running processes of a trial, and of those under it, by number; their command lines."""
    mark = f"{MARK}={folder}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            variables = (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
            # A zombie has no command line.
            if words and any(each == mark or each.startswith(mark + b"/") for each in variables):
                found[int(process.name)] = words
    found.pop(os.getpid(), None)
    return found


def find(folder: Path, *words: str) -> int | None:
    """The process of a trial whose command line has these words, one after the other."""
    for number, line in marked(folder).items():
        if any(tuple(line[at : at + len(words)]) == words for at in range(len(line))):
            return number
    return None


def wait_for(condition: Callable[[], int | None], program: Program | None, limit_s: float = LIMIT_S) -> int:
    """Wait until a function gives a process.

    Raises:
        TooLate: the program ended before.
        PerennialError: it took too long.
    """
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
    """Send a signal.

    Raises:
        TooLate: the process has ended.
    """
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
    """Kill all programs of a rehearsal at the end of the block, also when this process is killed in it."""
    command = [sys.executable, "-m", WATCHER, str(base)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True):
        try:
            yield
        finally:
            kill_marked(base)


if __name__ == "__main__":
    sys.stdin.read()  # until the rehearsal has ended
    kill_marked(Path(sys.argv[1]))
