"""A stage as a process: alone in its checkout, ended by signals, never outliving its starter."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perennial import files, process
from perennial.errors import ConfigError, PerennialError

SOURCE = Path(process.__file__).parents[1]
STAGE = [sys.executable, "-m", "perennial", "download"]
STARTER = f"import subprocess; subprocess.run({STAGE})"
HOLDER = """
import time
from pathlib import Path
from perennial import process
with process.alone(Path(".work"), "convert"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def silent_server(load):
    """A server that takes a connection and never answers: a stage that asks it is busy until it is ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        load(**{"dataset.base_url": f"http://127.0.0.1:{server.getsockname()[1]}/"})
        yield server


def start(command, **environment):
    clean = {"NO_PROXY": "127.0.0.1"} | {
        name: value for name, value in os.environ.items() if name != process.STARTED_BY
    }
    return subprocess.Popen(
        command,
        env=clean | {"PYTHONPATH": str(SOURCE)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def interrupted(silent_server, request):
    """Exit code and last words of a stage that was sent a signal while it worked."""
    with start(STAGE) as stage:
        connection, _ = silent_server.accept()
        with connection:
            stage.send_signal(request.param)
            _, said = stage.communicate(timeout=10)
    return stage.returncode, said


both_signals = pytest.mark.parametrize("interrupted", [signal.SIGTERM, signal.SIGINT], indirect=True)
terminated = pytest.mark.parametrize("interrupted", [signal.SIGTERM], indirect=True)


@both_signals
def test_a_stage_that_is_told_to_end_exits_with_75(interrupted):
    assert interrupted[0] == 75


@terminated
def test_a_stage_that_is_told_to_end_says_so_in_one_line(interrupted):
    assert interrupted[1] == (
        "perennial download: SIGTERM ended the stage; no half-written output was left; run it again\n"
    )


@terminated
def test_a_stage_that_is_told_to_end_leaves_its_code_for_the_task(interrupted):
    failure = files.read_json(Path(".work/failure.json"))
    assert (failure["stage"], failure["code"]) == ("download", 75)


@terminated
def test_a_stage_that_is_told_to_end_leaves_no_output(interrupted):
    assert list(Path().glob("data/*")) == []


@pytest.mark.parametrize("interrupted", [signal.SIGKILL], indirect=True)
def test_the_lock_of_a_killed_stage_is_free(interrupted, monkeypatch):
    monkeypatch.setattr(process, "LOCK_WAIT_S", 0)
    with process.alone(Path(".work"), "convert"):
        assert "convert" in Path(".work/stage.lock").read_text()


def test_a_stage_ends_soon_after_its_parent_is_killed(silent_server):
    with start([sys.executable, "-c", STARTER]) as parent:
        connection, _ = silent_server.accept()
        with connection:
            parent.kill()
            _, said = parent.communicate(timeout=8)  # the stage holds the other end of this pipe
    assert "SIGTERM ended the stage" in said


@pytest.mark.parametrize("asked_for", [True, False], ids=["gone", "ended but not asked for"])
def test_a_stage_ends_soon_after_the_process_that_its_environment_names(silent_server, asked_for):
    with (
        subprocess.Popen(["sleep", "60"]) as flow,
        start(STAGE, **{process.STARTED_BY: str(flow.pid)}) as stage,
    ):
        connection, _ = silent_server.accept()
        with connection:
            flow.kill()
            if asked_for:
                flow.wait()
            stage.communicate(timeout=8)
    assert stage.returncode == 75


def test_a_second_stage_is_refused_and_told_who_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "LOCK_WAIT_S", 0)
    with start([sys.executable, "-c", HOLDER]) as holder:
        holder.stdout.readline()
        with (
            pytest.raises(PerennialError, match=rf"\(convert, process {holder.pid}, lock .work/stage\.lock\)"),
            process.alone(Path(".work"), "train"),
        ):
            pass
        holder.kill()


def test_a_second_stage_waits_for_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "POLL_S", 0.01)
    order, held = [], threading.Event()

    def first():
        with process.alone(tmp_path, "convert"):
            held.set()
            order.append("first begins")
            threading.Event().wait(0.2)
            order.append("first ends")

    thread = threading.Thread(target=first)
    thread.start()
    held.wait()
    with process.alone(tmp_path, "train"):
        order.append("second begins")
    thread.join()
    assert order == ["first begins", "first ends", "second begins"]


def test_the_lock_is_free_after_a_stage_that_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LOCK_WAIT_S", 0)
    with pytest.raises(KeyError), process.alone(tmp_path, "convert"):
        raise KeyError
    with process.alone(tmp_path, "train"):
        assert (tmp_path / "stage.lock").read_text() == f"train, process {os.getpid()}\n"


def test_the_code_of_another_checkout_is_refused(tmp_path):
    (tmp_path / "src" / "perennial").mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"PYTHONPATH={tmp_path}/src"):
        process.require_own_checkout(tmp_path / "runs" / "1")


def test_the_code_of_this_checkout_is_accepted():
    process.require_own_checkout(SOURCE.parent / "data")


def test_a_folder_outside_every_checkout_is_accepted(tmp_path):
    process.require_own_checkout(tmp_path)
