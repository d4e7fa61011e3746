"""A stage as a process: signals end it, and it does not outlive the process that started it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perennial import files
from perennial.errors import ConfigError
from perennial.runtime import process

SOURCE = Path(process.__file__).parents[2]
STAGE = [sys.executable, "-m", "perennial", "download"]
STARTER = f"import subprocess; subprocess.run({STAGE})"
BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


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
    return subprocess.Popen(
        command,
        env=clean | {"PYTHONPATH": str(SOURCE)} | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# --- signals ---

HEAD = """
import os, sys, time
from perennial.errors import Interrupted
from perennial.runtime import process

def ready(word="ready"):
    print(word, flush=True)
"""
TAIL = """
except Interrupted as error:
    sys.exit(error.exit_code)
"""
SWALLOWS = """
try:
    with process.interruptible(repeat_s=0.05):
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
    with process.interruptible(repeat_s=0.05), process.signals_held():
        ready()
        while True:
            time.sleep(0.01)
"""
CLEANS_UP = """
try:
    with process.interruptible(repeat_s=REPEAT_S):
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


def child(code, **values):
    return start(
        [sys.executable, "-c", HEAD + "".join(f"{k} = {v}\n" for k, v in values.items()) + code + TAIL]
    )


@BOTH
def test_a_swallowed_signal_is_raised_again_until_it_ends_the_block(number):
    with child(SWALLOWS) as swallower:
        swallower.stdout.readline()
        swallower.send_signal(number)
        assert swallower.wait() == 75


def test_an_error_that_native_code_makes_of_a_signal_is_an_interruption():
    with child(CONVERTS) as importer:
        importer.stdout.readline()
        importer.send_signal(signal.SIGTERM)
        assert importer.wait() == 75


@BOTH
def test_a_repeated_signal_ends_a_process_that_hangs(number):
    with child(HANGS) as hanging:
        hanging.stdout.readline()
        hanging.send_signal(number)
        assert "again" in hanging.stderr.readline()
        hanging.send_signal(number)
        assert "at once" in hanging.stderr.readline()
        assert hanging.wait() == 75


def test_a_repeated_signal_ends_a_clean_up_that_hangs():
    with child(CLEANS_UP, REPEAT_S=0.05) as cleaning:
        cleaning.stdout.readline()
        cleaning.send_signal(signal.SIGINT)
        assert cleaning.stdout.readline() == "cleaning up\n"
        cleaning.stderr.readline()
        cleaning.send_signal(signal.SIGTERM)
        assert (cleaning.wait(), cleaning.stdout.read()) == (75, "")


def test_a_second_signal_right_after_the_first_does_not_break_the_clean_up():
    with child(CLEANS_UP, REPEAT_S=3600) as cleaning:
        cleaning.stdout.readline()
        cleaning.send_signal(signal.SIGINT)
        cleaning.stdout.readline()
        cleaning.send_signal(signal.SIGTERM)
        out, _ = cleaning.communicate("go")
        assert (cleaning.returncode, out) == (75, "saved\n")


def test_a_third_signal_ends_the_process_at_once():
    with child(CLEANS_UP, REPEAT_S=3600) as cleaning:
        cleaning.stdout.readline()
        cleaning.send_signal(signal.SIGINT)
        cleaning.stdout.readline()
        cleaning.send_signal(signal.SIGTERM)
        cleaning.send_signal(signal.SIGINT)
        assert (cleaning.wait(), cleaning.stdout.read()) == (75, "")


def test_a_signal_waits_for_the_end_of_a_hold():
    with child(HELD) as held:
        held.stdout.readline()
        held.send_signal(signal.SIGTERM)
        out, _ = held.communicate("go")
        assert (held.returncode, out) == (75, "consistent\n")


def test_handlers_are_restored_after_the_block():
    before = signal.getsignal(signal.SIGTERM)
    with process.interruptible(), process.interruptible():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


@BOTH
def test_an_interrupted_stage_exits_with_75_and_leaves_its_code_and_no_output(silent_server, number):
    with start(STAGE) as stage:
        connection, _ = silent_server.accept()
        with connection:
            stage.send_signal(number)
            _, said = stage.communicate()
    assert (stage.returncode, len(said.splitlines()), number.name in said) == (75, 1, True)
    failure = files.read_json(Path(".work/failure.json"))
    assert (failure["stage"], failure["code"], list(Path().glob("data/*"))) == ("download", 75, [])


# --- starters ---


def test_a_stage_ends_soon_after_its_parent_is_killed(silent_server):
    with start([sys.executable, "-c", STARTER]) as parent:
        connection, _ = silent_server.accept()
        with connection:
            parent.kill()
            _, said = parent.communicate()  # the stage holds the other end of this pipe
    assert "SIGTERM" in said


@pytest.mark.parametrize("reaped", [True, False], ids=["gone", "zombie"])
def test_a_stage_ends_soon_after_the_process_that_its_environment_names(silent_server, reaped):
    with (
        subprocess.Popen(["sleep", "3600"]) as flow,
        start(STAGE, **{process.STARTED_BY: str(flow.pid)}) as stage,
    ):
        connection, _ = silent_server.accept()
        with connection:
            flow.kill()
            if reaped:
                flow.wait()
            stage.communicate()
    assert stage.returncode == 75


# --- checkouts ---


def test_the_code_of_another_checkout_is_refused(tmp_path):
    (tmp_path / "src" / "perennial").mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"PYTHONPATH={tmp_path}/src"):
        process.require_own_checkout(tmp_path / "runs" / "1")


def test_a_folder_of_this_checkout_or_of_none_is_accepted(tmp_path):
    process.require_own_checkout(SOURCE.parent / "data")
    process.require_own_checkout(tmp_path)
