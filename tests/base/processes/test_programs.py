"""Running other programs: each has an end, asks nothing, and leaves no process or lock behind."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.checkout import wait_until

from perennial.base import limits
from perennial.base.errors import ConfigError
from perennial.base.processes import programs
from perennial.base.processes.process import is_alive
from perennial.base.processes.programs import Program, TimedOut

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
BEGIN = "import os, sys, time; from functools import partial; from pathlib import Path\n"
# Who starts programs of its own, each with a second of grace and that one in place of Python.
STARTERS = {
    "child": """
        from perennial.base.parallel import child
        child.programs.limits.GRACE_S, sys.executable = 1, str(own)
        with child.started("any", Path("log")): time.sleep(1000)""",
    "ray": """
        from perennial.base.parallel import ray_driver
        ray_driver.require_usable = lambda: None
        ray_driver.END_S, sys.executable = 1, str(own)
        with ray_driver.Driver(print): time.sleep(1000)""",
    "command": """
        from perennial.orchestration.work import perennial_command
        perennial_command.GRACE_S, sys.executable = 1, str(own)
        perennial_command.call_perennial("publish")""",
    "fork": """
        from perennial.base.processes import programs
        from perennial.orchestration.work.perennial_command import Fork
        programs.run(partial(Fork, partial(os.execv, own, [own])), limit_s=None, grace_s=1)""",
    "dvc": """
        from perennial.base.dvc import repro
        repro.GRACE_S = 1
        repro.run(own, folder=Path(), variables=os.environ, work=Path(), to=print)""",
    "worker": """
        from perennial.orchestration.provisioning import worker
        worker.SAVE_S = 1
        worker.SupervisedProcess([str(own)]).keep_alive(); time.sleep(1000)""",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; what a failed test left running there is ended."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for process in pids():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def pids() -> list[int]:
    """The processes of a stubborn program."""
    file = Path("pids")
    return list(map(int, file.read_text().split())) if file.exists() else []


def gone() -> bool:
    """Whether none of them lives."""
    return len(pids()) == 2 and not any(map(is_alive, pids()))


@pytest.fixture
def stubborn(here: Path) -> Path:
    """The program as a file, in a folder to work in."""
    file = here / "stubborn"
    file.write_text(f"#!/bin/sh\n{STUBBORN}\n")
    file.chmod(0o755)
    return file


def test_a_program_that_never_ends_is_stopped_with_its_children_and_quoted(here: Path) -> None:
    with pytest.raises(programs.TimedOut, match=r"sh -c did not end within 0.5 s .*its last lines: last; .*=2"):
        programs.run(["sh", "-c", STUBBORN], limit_s=0.5, grace_s=0.1)
    wait_until(gone)


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
        wait_until(lambda: len(pids()) == 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        programs.run(["sh", "-c", STUBBORN], limit_s=1000, to=interrupt, grace_s=0.1)
    wait_until(gone)


def test_a_killed_process_leaves_no_program_and_its_lock_is_free_only_then(here: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER]) as holder:
        # The guard is started after the program, which may have written its numbers before.
        wait_until(lambda: len(pids()) == len(psutil.Process(holder.pid).children()) == 2)
        holder.kill()
    with (here / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits for the guard
    wait_until(gone)


def test_a_daemon_that_keeps_the_output_open_is_left_alone(here: Path) -> None:
    done = programs.run(["sh", "-c", "sleep 1000 & echo $! > pids; echo done"], limit_s=1000)
    assert (done.code, done.output) == (0, "done\n")
    assert is_alive(pids()[0])


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


@pytest.mark.parametrize("starter", STARTERS)
def test_a_killed_process_leaves_none_of_what_it_started(stubborn: Path, starter: str) -> None:
    lines = (line.strip() for line in STARTERS[starter].strip().splitlines())
    script = "\n".join((f"{BEGIN}own = Path({str(stubborn)!r})", *lines))
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        # It waits once it has told the guard; the program may have written its numbers before.
        wait_until(lambda: len(pids()) == 2 and psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)
        started = [psutil.Process(pid) for pid in pids()]  # knows a number that another process has by then
        process.kill()
    wait_until(lambda: not any(each.is_running() and is_alive(each.pid) for each in started))


def test_a_program_that_ignores_its_signal_is_killed_after_its_grace(stubborn: Path) -> None:
    with Program([stubborn], grace_s=0.1) as program:
        wait_until(lambda: len(pids()) == 2)
        assert not program.stop()
    assert program.poll() == -9
    assert gone()


def test_a_program_that_never_answers_is_given_up_and_quoted(stubborn: Path) -> None:
    program = Program(["sh", "-c", f"echo asked >&2; exec {stubborn}"], feed=True, grace_s=0)
    wait_until(lambda: len(pids()) == 2)
    with pytest.raises(TimedOut, match="its last lines: asked"):
        program.finish(b"a question", limit_s=0.5)
    wait_until(gone)


def test_the_end_of_a_block_ends_what_an_ended_program_left(here: Path) -> None:
    with Program(["sh", "-c", "sleep 1000 & echo $! > pids"]) as program:
        assert program.wait(1000) == 0
        assert is_alive(pids()[0])
    wait_until(lambda: not is_alive(pids()[0]))


def test_a_program_that_does_not_read_what_it_is_given_is_no_failure_of_ours() -> None:
    closed = Program(["sh", "-c", "exec <&-; exit 5"], feed=True)
    assert closed.finish(b"x" * 10**7, limit_s=1000).code == 5


def test_a_program_answers_what_it_is_asked_later(here: Path) -> None:
    with Program(["cat"], feed=True) as program:
        assert program.wait(0.01) is None
        assert program.finish("é".encode() * 10**6, limit_s=1000).output == "é" * 10**6


def test_of_a_flood_of_errors_the_end_is_kept() -> None:
    flood = "head -c 30000000 /dev/zero | tr '\\0' x >&2; echo; echo last >&2; exit 3"
    done = programs.run(["sh", "-c", flood], limit_s=1000)
    assert done.last_lines().endswith("xlast")
    assert len(done.stderr) <= 2 * programs.KEPT


def test_a_line_without_an_end_is_passed_on_in_pieces() -> None:
    pieces: list[str] = []
    programs.run(["head", "-c", "1000000", "/dev/zero"], limit_s=1000, to=pieces.append)
    assert max(map(len, pieces)) <= 2 * programs.CHUNK
    assert sum(map(len, pieces)) == 1_000_000
