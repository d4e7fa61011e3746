"""Programs that run beside this process: whatever either of them does, none is left."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.checkout import wait_until

from perennial.base.processes import programs
from perennial.base.processes.process import is_alive
from perennial.base.processes.programs import Program, TimedOut

pytestmark = pytest.mark.timing
# It ignores SIGTERM, and so does the program that it starts.
STUBBORN = "#!/bin/sh\ntrap '' TERM\nsleep 1000 &\necho $$ $! > pids\nwait; wait\n"
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
def stubborn(workspace: Path) -> Path:
    """The program, in the folder of a project."""
    file = workspace / "stubborn"
    file.write_text(STUBBORN)
    file.chmod(0o755)
    return file.resolve()


def pids() -> list[int]:
    file = Path("pids")
    return list(map(int, file.read_text().split())) if file.exists() else []


@pytest.mark.parametrize("starter", STARTERS)
def test_a_killed_process_leaves_none_of_what_it_started(stubborn: Path, starter: str) -> None:
    lines = (line.strip() for line in STARTERS[starter].strip().splitlines())
    script = "\n".join((f"{BEGIN}own = Path({str(stubborn)!r})", *lines))
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        wait_until(lambda: len(pids()) == 2)
        started = [psutil.Process(pid) for pid in pids()]  # knows a number that another process has by then
        process.kill()
    wait_until(lambda: not any(each.is_running() and is_alive(each.pid) for each in started))


def test_a_program_that_ignores_its_signal_is_killed_after_its_grace(stubborn: Path) -> None:
    with Program([stubborn], grace_s=0.1) as program:
        wait_until(lambda: len(pids()) == 2)
        assert not program.stop()
    assert program.poll() == -9
    assert not any(map(is_alive, pids()))


def test_a_program_that_never_answers_is_given_up_and_quoted(stubborn: Path) -> None:
    program = Program(["sh", "-c", f"echo asked >&2; exec {stubborn}"], feed=True, grace_s=0)
    with pytest.raises(TimedOut, match="its last lines: asked"):
        program.finish(b"a question", limit_s=0.5)
    assert not any(map(is_alive, pids()))


def test_the_end_of_a_block_ends_what_an_ended_program_left(workspace: Path) -> None:
    with Program(["sh", "-c", "sleep 1000 & echo $! > pids"]) as program:
        assert program.wait(1000) == 0
        assert is_alive(pids()[0])
    wait_until(lambda: not is_alive(pids()[0]))


def test_a_program_that_does_not_read_what_it_is_given_is_no_failure_of_ours() -> None:
    closed = Program(["sh", "-c", "exec <&-; exit 5"], feed=True)
    assert closed.finish(b"x" * 10**7, limit_s=1000).code == 5


def test_a_program_answers_what_it_is_asked_later(workspace: Path) -> None:
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
    programs.run(["head", "-c", "5000000", "/dev/zero"], limit_s=1000, to=pieces.append)
    assert max(map(len, pieces)) <= 2 * programs.CHUNK
    assert sum(map(len, pieces)) == 5_000_000
