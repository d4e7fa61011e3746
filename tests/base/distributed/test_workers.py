"""A training that starts its workers itself: as those that somebody starts, and none outlives it.

FAULTS=all adds signals and the kill of a worker.
"""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from base.devices.leases import Holder, until
from support import workers

from perennial.base import documents
from perennial.base.devices import gpus, lease
from perennial.base.devices.lease import Lease
from perennial.base.distributed import workers as launcher
from perennial.base.errors import ConfigError

TOGETHER = {"compute.workers": 2, "train.devices": "cpu:2"}
LONG = {"train.max_steps": 3000, "train.steps_between_evals": 3000, "checkpoints.interval_steps": 20}
rest = pytest.mark.skipif(os.environ.get("FAULTS") != "all", reason="only with FAULTS=all")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A machine with two GPUs, which TensorFlow cannot use."""
    for name in (gpus.VISIBLE, lease.GIVEN):
        monkeypatch.delenv(name, raising=False)
    values = {gpus.LISTED: "0,1", "PERENNIAL_HOME": str(tmp_path / "home")}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return values


@pytest.fixture
def train():
    """Starts a training in a folder; none is left after the test."""
    started = []

    def start(folder):
        started.append(workers.start(folder))
        return started[-1]

    yield start
    workers.ends(started, 0)


def children(process):
    """The processes that it started."""
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def failure(folder):
    """The message for the task."""
    return str(json.loads((folder / ".work" / "failure.json").read_text())["message"])


def test_workers_that_it_starts_make_what_workers_by_hand_make(shared_records, tmp_path, train):
    ours, by_hand = (workers.copy(shared_records, tmp_path / name) for name in ("ours", "by hand"))
    workers.change_params(ours / "params.yaml", TOGETHER)
    processes = [train(ours), *workers.start_together(by_hand, 2)]
    assert workers.ends(processes) == [0, 0, 0], workers.said(ours)
    one, other = (documents.read_json(folder / "metrics" / "training.json") for folder in (ours, by_hand))
    assert one == other
    lines = workers.said(ours).splitlines()
    second = [line for line in lines if line.startswith("worker 1: ")]
    assert "checkpoint of step" in str(lines)
    assert second
    assert "checkpoint of" not in str(second)


@pytest.mark.slow
def test_none_outlives_the_process_that_started_them_and_their_gpus_stay_leased_so_long(
    shared_records, environment, tmp_path, train
):
    folder = workers.copy(
        shared_records, tmp_path / "killed", {**LONG, "compute.workers": 2, "train.devices": "auto"}
    )
    training = train(folder)
    workers.wait_for_step(folder, 25, [training])
    started = children(training.pid)
    seen = [Path(f"/proc/{each}/environ").read_bytes().split(b"\0") for each in started]
    assert [b"CUDA_VISIBLE_DEVICES=0" in each for each in seen] == [True, False]
    assert [b"CUDA_VISIBLE_DEVICES=1" in each for each in seen] == [False, True]
    other = Holder("other", environment).waits()
    training.kill()
    other.has()
    until(lambda: not any(map(launcher.process.is_alive, started)), "the workers' end")
    other.end()


@rest
def test_a_signal_reaches_all_and_they_resume(shared_records, tmp_path, train):
    folder = workers.copy(shared_records, tmp_path / "signalled", {**LONG, **TOGETHER})
    for step in (25, 60):
        training = train(folder)
        workers.wait_for_step(folder, step, [training])
        training.send_signal(signal.SIGTERM)
        assert workers.ends([training]) == [75]
        assert "saved at step" in failure(folder)
    assert "resumed from step" in workers.said(folder)


@rest
def test_a_worker_that_is_killed_ends_all_and_they_save(shared_records, tmp_path, train):
    folder = workers.copy(shared_records, tmp_path / "killed", {**LONG, **TOGETHER})
    training = train(folder)
    workers.wait_for_step(folder, 5, [training])
    os.kill(children(training.pid)[1], signal.SIGKILL)
    assert workers.ends([training]) == [75]
    assert "worker 1 was ended by SIGKILL" in failure(folder)
    assert "saved at step" in failure(folder)


@pytest.mark.slow
def test_the_mistake_of_a_worker_is_that_of_the_stage(shared_records, tmp_path, train):
    folder = workers.copy(shared_records, tmp_path / "mistaken", {**TOGETHER, "train.batch_size": 97})
    assert workers.ends([train(folder)]) == [2]
    assert re.match("worker [01]: train.batch_size 97 cannot be split evenly over 2 devices", failure(folder))


@pytest.mark.parametrize(
    ("taken", "count", "text"),
    [
        (Lease(devices="cpu:3"), 2, "set train.devices to cpu:2"),
        (Lease(devices="gpu:3", gpus=("0", "1", "2")), 2, "there are 3 GPUs to share"),
    ],
)
def test_devices_that_cannot_be_shared_are_refused(taken, count, text, tmp_path):
    with pytest.raises(ConfigError, match=text):
        launcher.run(["train"], count, taken, tmp_path)
