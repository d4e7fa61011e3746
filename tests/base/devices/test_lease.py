"""GPUs, here names, are leased to one process at a time, in the order of asking, and freed however it ends.

One round here; LEASES=20 plays twenty.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest
from support import workers
from support.checkout import wait_until

from perennial.base.devices import gpus, lease
from perennial.base.errors import ConfigError

ROUNDS = int(os.environ.get("LEASES", "1"))
ROOT = Path(__file__).parents[3]
LIMIT_S = 900  # of a busy machine
HOLDER = """
import logging, os, subprocess, sys, time
from pathlib import Path
from perennial.base.errors import PerennialError
from perennial.base.devices import lease
from perennial.base.processes import process

logging.basicConfig(level=logging.INFO, format="%(message)s")
name, devices, count, *how = sys.argv[1:]
count = count if count == "all" else int(count)
try:
    with process.interruptible(), lease.leased(devices, count, key="train.devices", name=name) as taken:
        if how:
            subprocess.Popen(["sleep", "600"])
        Path(f"{name}.new").write_text((os.environ.get("CUDA_VISIBLE_DEVICES") or "-"))
        Path(f"{name}.new").rename(f"{name}.has")
        while not Path(f"{name}.end").exists():
            time.sleep(0.01)
except PerennialError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


class Holder:
    """A process that leases GPUs and holds them until the test ends it. It works in the folder of the test."""

    def __init__(
        self, name: str, environment: Mapping[str, str], devices: str = "auto", count: int | str = 1, *how: str
    ) -> None:
        """Start it; with `how` it has a child."""
        self.name, self.file, self.end_file = name, Path(f"{name}.has"), Path(f"{name}.end")
        with Path(f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", HOLDER, name, devices, str(count), *how],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    @property
    def said(self) -> str:
        """What it has logged."""
        return Path(f"{self.name}.log").read_text()

    def has(self) -> str:
        """The GPUs that CUDA sees in it; waits until it has them."""
        wait_until(lambda: self.file.exists() or self.process.poll() is not None, pause=0.005)
        assert self.process.poll() is None, self.said
        return self.file.read_text()

    def waits(self) -> "Holder":
        wait_until(lambda: "waiting for" in self.said or self.process.poll() is not None)
        assert not self.file.exists()
        return self

    def end(self) -> int:
        self.end_file.touch()
        return self.process.wait(LIMIT_S)

    def kill(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@pytest.fixture
def two(tmp_path, monkeypatch):
    """The environment of processes on a machine with two GPUs, in whose folder the test works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    environment = {gpus.LISTED: "0,1", "PERENNIAL_HOME": str(tmp_path / "home")}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


@pytest.fixture
def start(two):
    """Starts a process that takes GPUs; none is left after the test."""
    started = []

    def begin(name, *how, **environment):
        started.append(Holder(name, {**two, **environment}, *how))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_processes_have_gpus_of_their_own_in_the_order_of_asking(start, number):
    draw = random.Random(number)
    names = (f"{letter}" for letter in count())
    holding = [start(next(names)) for _ in range(2)]
    assert sorted(each.has() for each in holding) == ["0", "1"]
    queue = [start(next(names)).waits() for _ in range(3)]  # one after the other: the order is that of asking
    took = []
    while queue:
        leaving = holding.pop(draw.randrange(2))
        gpu, stayed = leaving.has(), holding[0].has()
        killed = draw.random() < 0.5
        leaving.kill() if killed else leaving.end()
        freed = time.monotonic()
        first = queue.pop(0)
        assert first.has() == gpu != stayed
        took.append((time.monotonic() - freed, killed))
        assert not any(each.file.exists() for each in queue)
        holding.append(first)
    print(number, *(f"{seconds:.3f} s{' after kill -9' * killed}" for seconds, killed in took))


def test_a_log_line_says_who_holds_what_is_waited_for(start):
    first = start("first", "gpu:2")
    assert first.has() == "0,1"
    second, third = start("second").waits(), start("third", "gpu:0,1").waits()
    wait_until(lambda: "second" in third.said)
    where = f"first in {Path.cwd()}, process {first.process.pid}"
    assert f"waiting for 1 of 2 GPUs; in use: 0 by {where}; 1 by {where}" in second.said
    assert f"; first in the queue: second in {Path.cwd()}, process {second.process.pid}" in third.said


def test_a_child_does_not_keep_the_gpus_of_a_killed_process(start):
    first = start("first", "gpu:2", 1, "with a child")
    first.has()
    second = start("second").waits()
    (child,) = Path(f"/proc/{first.process.pid}/task/{first.process.pid}/children").read_text().split()
    first.kill()
    assert second.has() == "0"
    os.kill(int(child), signal.SIGKILL)


def test_a_signal_ends_the_wait_with_75(start):
    start("first", "gpu:2").has()
    second, third = start("second").waits(), start("third").waits()
    assert [each.kill(signal.SIGTERM) for each in (third, second)] == [75, 75]


def test_what_the_user_hides_from_cuda_is_not_leased(start):
    assert start("first", "auto", "all", CUDA_VISIBLE_DEVICES="1").has() == "1"
    assert start("second", "auto", "all", CUDA_VISIBLE_DEVICES="0").has() == "0"
    assert start("none", "auto", "all", CUDA_VISIBLE_DEVICES="").has() == "-"


@pytest.mark.parametrize(
    ("devices", "wanted", "taken", "seen"),
    [("auto", "all", "auto", "0,1"), ("gpu:1,0", "all", "gpu:2", "1,0"), ("gpu:1", "all", "gpu:1", "0")],
)
def test_the_devices_of_the_block_count_among_the_leased(two, devices, wanted, taken, seen):
    with lease.leased(devices, wanted, key="train.devices", name="train") as found:
        assert found.devices == taken
        assert os.environ[gpus.VISIBLE] == seen
    assert gpus.VISIBLE not in os.environ


@pytest.mark.parametrize(
    ("devices", "count", "shown", "text"),
    [
        ("auto", 3, None, "compute.gpus is 3, but this machine has 2 GPUs; nothing was started"),
        ("auto", 2, "1", "this machine has 2 GPUs, of which CUDA_VISIBLE_DEVICES=1 leaves 1"),
        ("gpu:3", "all", None, "train.devices is gpu:3, but this machine has 2 GPUs"),
        ("gpu:0,2", "all", None, "train.devices is gpu:0,2, but this machine has 2 GPUs"),
    ],
)
def test_more_than_there_are_is_refused(two, monkeypatch, devices, count, shown, text):
    if shown:
        monkeypatch.setenv(gpus.VISIBLE, shown)
    with pytest.raises(ConfigError, match=text), lease.leased(devices, count, key="train.devices", name="x"):
        pass


@pytest.mark.parametrize(("listed", "devices"), [("", "auto"), ("", "gpu:1"), ("0,1", "cpu:2")])
def test_without_a_gpu_to_compute_on_nothing_is_written(two, monkeypatch, listed, devices):
    monkeypatch.setenv(gpus.LISTED, listed)
    with lease.leased(devices, "all", key="train.devices", name="x") as taken:
        assert taken.devices == devices
        assert gpus.VISIBLE not in os.environ
    assert not Path("home").exists()


@pytest.mark.slow
def test_a_training_waits_for_its_gpu(two, start, digits):
    folder = workers.copy(digits, Path("training"), {"train.max_steps": 2, "train.epochs": None})
    holder = start("holder", "gpu:0,1")
    holder.has()
    training = workers.start(folder)
    wait_until(lambda: "waiting for 2 of 2 GPUs" in workers.said(folder))
    assert not (folder / ".work" / "tensorflow.log").exists()  # TensorFlow is not imported yet
    holder.end()
    assert workers.ends([training]) == [0]
    assert "got GPU 0, 1 after" in workers.said(folder)
