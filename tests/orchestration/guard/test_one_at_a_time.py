"""The order of runs, and the lock of a machine."""

import ast
import errno
import fcntl
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import pytest
from conftest import ROOT
from prefect.client.schemas.objects import FlowRun, State, StateType

from perennial.base import files
from perennial.base.errors import ConfigError
from perennial.orchestration.engine.this_run import Stopped
from perennial.orchestration.guard.fence import Held, Holder, fence, repositories
from perennial.orchestration.guard.one_at_a_time import require_idle
from perennial.orchestration.server.server_runs import place_in_line
from perennial.orchestration.work.stage_failures import StageFailed

START = datetime(2026, 1, 1, tzinfo=UTC)
HOLDER = Holder("swift-owl", "1", "2026-01-01 00:00 UTC", "/somewhere", 1)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for the locks."""
    monkeypatch.setenv("PERENNIAL_HOME", str(tmp_path_factory.mktemp("home")))


def run(number: int, state: StateType, second: int) -> FlowRun:
    at = State(type=state, timestamp=START + timedelta(seconds=second))
    return FlowRun(id=UUID(int=number), flow_id=UUID(int=0), state=at)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (run(2, StateType.RUNNING, 1), run(1, StateType.RUNNING, 2)),  # the longest
        (run(1, StateType.RUNNING, 1), run(2, StateType.RUNNING, 1)),  # by their id
        (run(1, StateType.CANCELLING, 9), run(2, StateType.RUNNING, 1)),  # it still works
    ],
)
def test_of_two_runs_one_goes_first(first: FlowRun, second: FlowRun) -> None:
    assert min(second, first, key=place_in_line) is first


@pytest.mark.parametrize("file", sorted((ROOT / "flows").glob("[a-z]*.py")), ids=lambda file: file.stem)
def test_every_flow_begins_with_the_guard(file: Path) -> None:
    functions = [each for each in ast.parse(file.read_text()).body if isinstance(each, ast.FunctionDef)]
    # After the docstring.
    (first,) = [ast.unparse(each.body[1]) for each in functions if each.name == file.stem]
    assert first.startswith(("with one_at_a_time(", "require_worth_starting("))


def test_a_second_run_learns_who_holds_the_lock() -> None:
    with (
        fence(["/repository", "https://host/repository"], "classifier", HOLDER),
        pytest.raises(Held) as held,
        fence(["https://host/repository"], "classifier", HOLDER),
    ):
        pass
    assert held.value.holder == HOLDER
    with fence(["/repository"], "classifier", HOLDER), fence(["/repository"], "other", HOLDER):
        pass


def test_a_relative_home_is_refused_since_no_other_run_would_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_HOME", "home")
    with (
        pytest.raises(StageFailed, match="must be an absolute path, got home"),
        fence(["/repository"], "classifier", HOLDER),
    ):
        pass
    with pytest.raises(ConfigError, match="must be an absolute path, got home"):
        files.home()


def test_a_home_without_locks_is_said_and_the_run_goes_on(monkeypatch, caplog) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    with fence(["/repository"], "classifier", HOLDER):
        assert "no lock keeps other runs on this machine away: [Errno 37] No locks" in caplog.text


def test_a_killed_run_holds_nothing() -> None:
    code = (
        "import time; from perennial.orchestration.guard.fence import *\n"
        "holder = Holder('a', 'b', 'c', 'd', 1)\n"
        "with fence(['/repository'], 'classifier', holder): print(flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        with pytest.raises(Held), fence(["/repository"], "classifier", HOLDER):
            pass
        os.kill(other.pid, signal.SIGKILL)
    with fence(["/repository"], "classifier", HOLDER):
        pass


def test_a_deployed_run_and_a_shell_in_its_repository_have_one_lock(tmp_path, monkeypatch) -> None:
    repository, clone = tmp_path / "repository", tmp_path / "clone"
    for command in (["init", "-q", repository], ["clone", "-q", repository, clone]):
        subprocess.run(["git", *map(str, command)], check=True, capture_output=True)
    monkeypatch.chdir(repository)
    shell = repositories(deployed=False, server=True)
    monkeypatch.chdir(clone)
    of_a_clone = repositories(deployed=False, server=True)
    without_server = repositories(deployed=False, server=False)
    monkeypatch.setenv("PERENNIAL_REPOSITORY", f"{repository}/")
    deployed = repositories(deployed=True, server=True)
    assert (shell, deployed) == ([str(repository)], [str(repository)])
    assert (of_a_clone, without_server) == ([str(clone), str(repository)], [str(clone)])


def test_a_run_beside_another_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    require_idle("classifier")
    why = "run a night in /there has been running since 02:00; this one was not started"
    holder = Holder("a night", "1", "02:00", "/there", 1)
    with fence([str(tmp_path)], "classifier", holder), pytest.raises(Stopped, match=why):
        require_idle("classifier")
    assert not issubclass(Stopped, Exception)  # of which Prefect's engine would make a failed run
    require_idle("classifier")


def test_runs_of_two_pipelines_of_a_repository_do_not_wait_for_each_other(tmp_path, monkeypatch) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    places = []
    for name in ("ants", "birds"):
        folder = tmp_path / "pipelines" / name
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        places.append(repositories(deployed=False, server=True))
    ants, birds = places
    with (
        fence(ants, "classifier", HOLDER),
        fence(birds, "classifier", HOLDER),
        pytest.raises(Held),
        fence(birds, "classifier", HOLDER),
    ):
        pass
