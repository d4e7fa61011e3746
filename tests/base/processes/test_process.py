"""A stage as a process: signals end it, and it does not outlive the process that started it."""

import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perennial.base import documents, layout
from perennial.base.errors import ConfigError
from perennial.base.processes import process

SOURCE = Path(process.__file__).parents[3]
STAGE = [sys.executable, "-m", "perennial", "download"]
STARTER = f"import subprocess; subprocess.run({STAGE})"
SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])


@pytest.fixture(autouse=True)
def _hearing_of_closed_terminals():
    """Let programs that the tests start get SIGHUP, also where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def silent_server(load):
    """A server that accepts a connection and never answers, so that a download waits for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        load(**{"dataset.base_url": f"http://127.0.0.1:{server.getsockname()[1]}/"})
        yield server


def start(command, **environment):
    clean = {"NO_PROXY": "127.0.0.1"} | {
        name: value for name, value in os.environ.items() if name != process.STARTED_BY
    }
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=clean | {"PYTHONPATH": str(SOURCE)} | environment, text=True, **pipes)


# --- signals ---

HEAD = """
import os, sys, time
from perennial.base.errors import Interrupted
from perennial.base.processes import process

def ready(word="ready"):
    print(word, flush=True)
"""
TAIL = """
except Interrupted as error:
    sys.exit(error.exit_code)
"""
SWALLOWS = """
try:
    with process.interruptible():
        for _ in range(3):
            try:
                ready()
                time.sleep(3600)
            except BaseException:
                pass
        os.read(0, 1)
"""
CONVERTS = """
try:
    with process.interruptible():
        try:
            ready()
            time.sleep(3600)
        except BaseException:
            raise ImportError("a native module failed")
"""
HANGS = """
try:
    with process.interruptible(), process.signals_held():
        ready()
        while True:
            time.sleep(0.01)
"""
CLEANS_UP = """
try:
    with process.interruptible():
        try:
            ready()
            time.sleep(3600)
        finally:
            ready("cleaning up")
            os.read(0, 1)
            ready("saved")
"""
HELD = """
try:
    with process.interruptible():
        with process.signals_held():
            ready()
            os.read(0, 1)
            ready("consistent")
        ready("never")
"""

IN_NATIVE_CODE = """
import ctypes
try:
    with process.interruptible():
        process.die_with_starter()
        try:
            # One native call: between two Python calls the handler could run.
            ctypes.CDLL(None).system(b"echo ready; read go")
        finally:
            ready("saved")
"""


def child(code, repeat_s=0.05, **environment):
    return start([sys.executable, "-c", f"{HEAD}process.REPEAT_S = {repeat_s}\n{code}{TAIL}"], **environment)


@pytest.mark.parametrize(
    ("code", "number"),
    [(SWALLOWS, signal.SIGTERM), (SWALLOWS, signal.SIGINT), (CONVERTS, signal.SIGTERM)],
    ids=["swallowed", "swallowed", "made an error by native code"],
)
def test_a_signal_ends_a_block_that_does_not_let_its_exception_through(code, number):
    with child(code) as stage:
        stage.stdout.readline()
        stage.send_signal(number)
        assert stage.wait() == 75


@SIGNALS
def test_a_repeated_signal_ends_a_process_that_hangs(number):
    with child(HANGS) as hanging:
        hanging.stdout.readline()
        for said in ("again", "at once"):
            hanging.send_signal(number)
            assert said in hanging.stderr.readline()
        assert hanging.wait() == 75


@pytest.mark.parametrize(
    ("repeat_s", "more", "out"),
    [
        (0.05, [signal.SIGTERM], ""),  # repeated: ends a clean-up that hangs
        (3600, [signal.SIGTERM], "saved\n"),  # right after the first: does not break it
        (3600, [signal.SIGTERM, signal.SIGINT], ""),  # the third ends it at once
    ],
)
def test_a_clean_up_is_ended_only_by_a_repeated_signal(repeat_s, more, out):
    with child(CLEANS_UP, repeat_s) as cleaning:
        cleaning.stdout.readline()
        cleaning.send_signal(signal.SIGINT)
        assert cleaning.stdout.readline() == "cleaning up\n"
        if repeat_s < 1:
            cleaning.stderr.readline()
        for number in more:
            cleaning.send_signal(number)
        found = cleaning.communicate("go")[0] if out else (cleaning.wait(), cleaning.stdout.read())[1]
        assert cleaning.returncode == 75
        assert found == out


def test_a_signal_waits_for_the_end_of_a_hold():
    with child(HELD) as held:
        held.stdout.readline()
        held.send_signal(signal.SIGTERM)
        out, _ = held.communicate("go")
        assert held.returncode == 75
        assert out == "consistent\n"


def test_handlers_are_restored_after_the_block():
    before = signal.getsignal(signal.SIGTERM)
    with process.interruptible(), process.interruptible():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.fast_rows("15")
@SIGNALS
def test_an_interrupted_stage_exits_with_75_and_leaves_its_code_and_no_output(silent_server, number):
    with start(STAGE) as stage, silent_server.accept()[0]:
        stage.send_signal(number)
        _, said = stage.communicate()
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    assert stage.returncode == 75
    assert len(said.splitlines()) == 1
    assert f"{name} ended" in said
    failure = documents.read_json(Path(".work/failure.json"))
    assert {"stage": "download", "code": 75}.items() <= failure.items()
    assert list(Path().glob("data/*")) == []


def test_a_stage_under_nohup_goes_on_when_its_terminal_is_closed(silent_server):
    with start(["nohup", *STAGE]) as stage, silent_server.accept()[0]:
        stage.send_signal(signal.SIGHUP)
        stage.send_signal(signal.SIGTERM)
        _, said = stage.communicate()
    assert stage.returncode == 75
    assert "SIGTERM ended" in said


def test_a_stage_whose_terminal_is_closed_leaves_its_code(silent_server):
    stage, terminal = pty.fork()
    if not stage:
        os.execve(sys.executable, STAGE, {**os.environ, "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(SOURCE)})
    with silent_server.accept()[0]:
        os.close(terminal)
        _, status = os.waitpid(stage, 0)
    assert os.waitstatus_to_exitcode(status) == 75
    assert documents.read_json(Path(".work/failure.json"))["code"] == 75


# --- starters ---


def test_a_stage_ends_soon_after_its_parent_is_killed(silent_server):
    with start([sys.executable, "-c", STARTER]) as parent, silent_server.accept()[0]:
        parent.kill()
        _, said = parent.communicate()  # the stage holds the other end of this pipe
    assert "SIGTERM" in said


@pytest.mark.fast_rows("gone")
@pytest.mark.parametrize("reaped", [True, False], ids=["gone", "zombie"])
def test_a_stage_ends_soon_after_the_process_that_its_environment_names(silent_server, reaped):
    with (
        subprocess.Popen(["sleep", "3600"]) as flow,
        start(STAGE, **{process.STARTED_BY: str(flow.pid)}) as stage,
        silent_server.accept()[0],
    ):
        flow.kill()
        if reaped:
            flow.wait()
        stage.communicate()
    assert stage.returncode == 75


def test_the_end_of_its_starter_is_no_second_signal_for_a_stage_in_native_code():
    with (
        subprocess.Popen(["sleep", "3600"]) as flow,
        child(IN_NATIVE_CODE, **{process.STARTED_BY: str(flow.pid)}) as stage,
    ):
        stage.stdout.readline()
        stage.send_signal(signal.SIGTERM)
        announced = stage.stderr.readline()
        flow.kill()
        flow.wait()
        time.sleep(4 * process.POLL_S)  # until the stage has noticed
        out, _ = stage.communicate("go")
    assert stage.returncode == 75
    assert out == "saved\n"
    assert "again" in announced


# --- checkouts ---


def test_a_folder_of_this_checkout_or_of_none_is_accepted(tmp_path):
    layout.require_own_checkout(SOURCE.parent / "data")
    layout.require_own_checkout(tmp_path)


def test_a_project_without_source_below_another_checkout_may_run(tmp_path: Path) -> None:
    (tmp_path / "src" / "perennial").mkdir(parents=True)
    (tmp_path / "src" / "perennial" / "__init__.py").touch()
    below = tmp_path / "shop" / "pipelines" / "birds"
    below.mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"has its own code .*PYTHONPATH={tmp_path}/src"):
        layout.require_own_checkout(below)
    (tmp_path / "shop" / "code.yaml").touch()
    layout.require_own_checkout(below)
