"""Running other programs: each has an end, asks nothing, and leaves no process or lock behind."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.checkout import wait_until

from perennial.base import limits
from perennial.base.errors import ConfigError
from perennial.base.processes import programs
from perennial.base.processes.process import is_alive

pytestmark = pytest.mark.timing

# A program that never ends, ignores SIGTERM and starts another one that keeps the output open.
STUBBORN = "trap '' TERM; sleep 1000 & echo $$ $! > pids; echo last; wait; wait"
# The same, run by a process of its own that holds a lock.
HOLDER = f"""
import fcntl, os
from pathlib import Path
from perennial.base.processes import programs
lock = os.open("lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
programs.run(["sh", "-c", {STUBBORN!r}], limit_s=1000, lock=lock, grace_s=1)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; what a failed test left running there is ended."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for process in pids(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def pids(folder: Path) -> list[int]:
    """The processes of a stubborn program."""
    file = folder / "pids"
    return list(map(int, file.read_text().split())) if file.exists() else []


def gone(folder: Path) -> Callable[[], bool]:
    """Whether none of them lives."""
    return lambda: len(pids(folder)) == 2 and not any(map(is_alive, pids(folder)))


def test_a_program_that_never_ends_is_stopped_with_its_children_and_quoted(here: Path) -> None:
    with pytest.raises(programs.TimedOut, match=r"sh -c did not end within 0.5 s .*its last lines: last; .*=2"):
        programs.run(["sh", "-c", STUBBORN], limit_s=0.5, grace_s=0.1)
    wait_until(gone(here))


def test_the_factor_of_the_environment_multiplies_every_limit(here, monkeypatch) -> None:
    monkeypatch.setenv(limits.FACTOR, "0.001")
    with pytest.raises(programs.TimedOut, match=r"within 0\.6 s"):
        programs.run(["sleep", "1000"], limit_s=600)


@pytest.mark.parametrize("factor", ["0", "-1", "nan", "inf", "two", ""])
def test_a_factor_that_is_no_positive_number_is_refused(factor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.FACTOR, factor)
    with pytest.raises(ConfigError, match="must be a positive number"):
        limits.scaled(1)


def test_an_interruption_stops_the_program_with_its_children(here: Path) -> None:
    def interrupt(_line: str) -> None:
        wait_until(lambda: len(pids(here)) == 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        programs.run(["sh", "-c", STUBBORN], limit_s=1000, to=interrupt, grace_s=0.1)
    wait_until(gone(here))


def test_a_killed_process_leaves_no_program_and_its_lock_is_free_only_then(here: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER]) as holder:
        # The guard is started after the program, which may have written its numbers before.
        wait_until(lambda: len(pids(here)) == len(psutil.Process(holder.pid).children()) == 2)
        holder.kill()
    with (here / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits for the guard
    wait_until(gone(here))


def test_a_daemon_that_keeps_the_output_open_is_left_alone(here: Path) -> None:
    done = programs.run(["sh", "-c", "sleep 1000 & echo $! > pids; echo done"], limit_s=1000)
    assert (done.code, done.output) == (0, "done\n")
    assert is_alive(pids(here)[0])


def test_a_program_inherits_neither_locks_nor_a_terminal_nor_prompts(here, monkeypatch) -> None:
    monkeypatch.setenv("SSH_ASKPASS", "a-window")
    descriptor = os.open("lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(descriptor, True)
    asked = f"ls -l /proc/$$/fd; tty; cat; env; test -e /proc/$$/fd/{descriptor} && echo inherited"
    done = programs.run(["sh", "-c", asked], limit_s=1000)
    os.close(descriptor)
    assert "not a tty" in done.output
    assert "inherited" not in done.output
    assert "GIT_TERMINAL_PROMPT=0" in done.output
    assert "a-window" not in done.output


def test_a_program_that_the_user_names_to_answer_git_stays() -> None:
    asked = {"GIT_ASKPASS": "token", "SSH_ASKPASS": "phrase", "SSH_ASKPASS_REQUIRE": "force"}
    assert programs.without_prompts(asked).items() >= asked.items()


def test_lines_come_whole_and_as_they_are_written() -> None:
    lines: list[str] = []
    script = "printf 'one\\ntw'; sleep 0.1; printf 'o\\n'; echo three >&2; printf last"
    programs.run(["sh", "-c", script], limit_s=1000, to=lines.append, merged=True)
    assert lines == ["one", "two", "three", "last"]


def test_what_a_program_reads_and_writes_may_be_larger_than_a_pipe() -> None:
    done = programs.run(
        ["sh", "-c", "cat; head -c 200000 /dev/zero >&2; exit 3"], limit_s=1000, stdin="é" * 10**6
    )
    assert (done.code, done.output, len(done.stderr)) == (3, "é" * 10**6, 200_000)


def test_a_program_is_stopped_once_it_has_written_enough() -> None:
    done = programs.run(["yes"], limit_s=1000, most=100)
    assert (done.code, done.stdout[:4]) == (0, b"y\ny\n")


def test_a_program_that_closes_its_output_is_waited_for() -> None:
    started = time.monotonic()
    done = programs.run(["sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 7"], limit_s=1000)
    assert done.code == 7
    assert time.monotonic() - started >= 0.3


def test_a_missing_program_is_named(here: Path) -> None:
    with pytest.raises(programs.Missing, match="no-such-program is not installed"):
        programs.run(["no-such-program"], limit_s=1)
