"""Locks between processes: one stage at a time in a checkout, beside DVC."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support import forks

from perennial.base.errors import PerennialError
from perennial.base.processes import locks

SOURCE = Path(locks.__file__).parents[3]
HOLDER = """
import sys
from pathlib import Path
from perennial.base.processes import locks
with locks.stage(Path(sys.argv[1]), "convert"):
    print("held", flush=True)
    sys.stdin.read()
"""
WORK = Path(".work")


@pytest.fixture(scope="module")
def initialized(tmp_path_factory):
    """A folder after `dvc init`."""
    folder = tmp_path_factory.mktemp("dvc")
    dvc("init", "-q", "--no-scm", cwd=folder, check=True)
    return folder


@pytest.fixture(params=["plain", "dvc"])
def checkout(request, tmp_path, monkeypatch, initialized):
    """An empty folder to work in, with or without DVC, where nobody waits for a lock."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(locks, "WAIT_S", 0)
    monkeypatch.delenv("DVC_STAGE", raising=False)
    if request.param == "dvc":
        shutil.copytree(initialized / ".dvc", ".dvc")


def dvc(*arguments, check=False, **options):
    command = [forks.python(), "-m", "dvc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)


with_dvc = pytest.mark.parametrize("checkout", ["dvc"], indirect=True)


def hold(work="work of another params file"):
    """Another process that holds the locks of a stage."""
    command, environment = [sys.executable, "-c", HOLDER, work], os.environ | {"PYTHONPATH": str(SOURCE)}
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    holder = subprocess.Popen(command, env=environment, text=True, **pipes)
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.parametrize("work", [".work", "work of another params file"])
def test_a_second_stage_in_a_checkout_is_refused_and_the_first_is_named_until_it_is_killed(checkout, work):
    with hold(work) as holder:
        named = rf"\(convert, process {holder.pid}, lock "
        with pytest.raises(PerennialError, match=named), locks.stage(WORK, "train"):
            pass
        holder.kill()
    with locks.stage(WORK, "train"):
        pass


def test_the_lock_is_free_after_a_stage_that_failed(checkout):
    with pytest.raises(KeyError), locks.stage(WORK, "convert"):
        raise KeyError
    with locks.stage(WORK, "train"):
        assert (WORK / "stage.lock").read_text() == f"train, process {os.getpid()}\n"


def test_workers_that_train_together_may_share_a_checkout(checkout):
    with locks.stage(WORK, "train"), locks.stage(WORK, "train", 1):
        pass


def test_a_second_stage_waits_for_the_first(checkout, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_S", 30)
    order, held = [], threading.Event()

    def first():
        with locks.stage(WORK, "convert"):
            held.set()
            threading.Event().wait(0.2)
            order.append("first ends")

    thread = threading.Thread(target=first)
    thread.start()
    assert held.wait(20)
    with locks.stage(WORK, "train"):
        order.append("second begins")
    thread.join()
    assert order == ["first ends", "second begins"]


@with_dvc
def test_a_stage_that_dvc_did_not_start_keeps_dvc_out(checkout):
    Path("dvc.yaml").write_text("stages:\n  make:\n    cmd: echo new > made\n    outs: [made]\n")
    Path("made").write_text("old")
    with hold() as holder:
        done = dvc("repro")
        assert (done.returncode != 0, "lock" in done.stderr, Path("made").read_text()) == (True, True, "old")
        holder.communicate()
    dvc("repro", "-q", check=True)
    assert Path("made").read_text() == "new\n"


@with_dvc
@pytest.mark.parametrize("use", ["read", "write"])
def test_dvc_keeps_a_stage_out_while_it_runs_one_of_this_pipeline_and_not_of_another(checkout, use):
    for folder in (Path(), Path("pipelines/birds")):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("params.yaml", "dvc.yaml"):
            (folder / name).touch()
    user = {"pid": os.getppid(), "cmd": "dvc repro"}

    def listed(path):
        users = {str(Path(path).absolute()): [user] if use == "read" else user}
        Path(".dvc/tmp/rwlock").write_text(json.dumps({use: users}))
        return locks.stage(WORK, "train")

    with pytest.raises(PerennialError, match=str(os.getppid())), listed("data"):
        pass
    with listed("pipelines/birds/data"):
        pass


@with_dvc
def test_a_dvc_that_locks_by_hard_links_works_after_a_stage_and_keeps_one_out(checkout):
    dvc("config", "core.hardlink_lock", "true", check=True)
    lock = Path(".dvc/tmp/lock")
    lock.unlink(missing_ok=True)
    with locks.stage(WORK, "train"):
        assert dvc("status").returncode
    dvc("status", "-q", check=True)
    lock.with_name("claim").write_text("dvc")
    lock.hardlink_to(lock.with_name("claim"))
    with pytest.raises(PerennialError, match="a DVC command works"), locks.stage(WORK, "train"):
        pass
    assert lock.read_text() == "dvc"


@with_dvc
def test_a_stage_that_dvc_started_leaves_dvcs_lock_alone(checkout, monkeypatch):
    monkeypatch.setenv("DVC_STAGE", "train")
    with locks.stage(WORK, "train"):
        dvc("status", "-q", check=True)


@with_dvc
@pytest.mark.parametrize("text", ["", "{", '{"write": {"a": {"pid": PID, "cmd": "dvc repro"}}}'])
def test_a_list_of_dvc_that_cannot_be_read_or_is_of_a_killed_one_is_no_obstacle(checkout, text):
    with subprocess.Popen(["true"]) as ended:
        pass
    Path(".dvc/tmp/rwlock").write_text(text.replace("PID", str(ended.pid)))
    with locks.stage(WORK, "train"):
        pass


@with_dvc
def test_only_a_stage_of_dvc_yaml_holds_the_lock_of_dvc(checkout):
    with locks.stage(WORK, "tune", by_dvc=False):
        dvc("status", "-q", check=True)
        assert (Path(".dvc/tmp/perennial.lock").exists(), Path(".perennial.lock").exists()) == (True, False)


@pytest.mark.parametrize(
    ("content", "named"), [(b"", "just started"), ("dvc é".encode(), "dvc é"), (b"\xff", "�")]
)
def test_a_second_one_is_refused_whatever_the_file_of_the_lock_holds(tmp_path, content, named):
    with locks.held(tmp_path / "lock", "one", busy=""):
        (tmp_path / "lock").write_bytes(content)
        again = locks.held(tmp_path / "lock", "two", busy="it is busy", timeout_s=0)
        with pytest.raises(PerennialError, match=rf"busy \({named}, lock "), again:
            pass


def test_who_waits_for_a_lock_logs_the_holder_and_takes_it_when_it_is_free(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_S", 0.05)
    caplog.set_level("INFO")
    file = tmp_path / "lock"
    with locks.held(file, "one", busy="it is busy"):
        for limit in ({}, {"timeout_s": 0}):
            with pytest.raises(PerennialError), locks.held(file, "other", busy="it is busy", **limit):
                pass
    assert {each.getMessage() for each in caplog.records} == {
        f"it is busy (one, process {os.getpid()}); waiting for it"
    }
    with locks.held(file, "other", busy=""):
        assert file.read_text() == f"other, process {os.getpid()}\n"
