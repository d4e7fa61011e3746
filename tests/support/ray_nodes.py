"""A Ray cluster on this machine, whose nodes can be lost and replaced, and what trainings leave on it."""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.checkout import wait_until

from perennial.base.processes import process


@contextlib.contextmanager
def cluster(folder: Path, *, head_cpus: int = 1, others: int = 1) -> Iterator[Any]:
    """Some nodes of one core each, started in a folder of their own; RAY_ADDRESS names them in the block."""
    if " " in sys.executable:
        pytest.skip("Ray starts no processes of a Python whose path holds a space")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Processes of Ray start late on a busy machine.
        patch.setenv("RAY_raylet_start_wait_time_s", "600")
        patch.setenv("RAY_worker_register_timeout_seconds", "600")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # the tests' tasks, and not the project
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - its import warns

        with contextlib.chdir(folder):
            head = {"num_cpus": head_cpus, "include_dashboard": False}
            started = Cluster(initialize_head=True, head_node_args=head)
            for _ in range(others):
                started.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", started.address)
        yield started
        started.shutdown()


def kill(node: Any, name: str) -> None:
    """Kill a process of a node with SIGKILL, and leave it a zombie."""
    os.kill(node.all_processes[name][0].process.pid, signal.SIGKILL)


def processes_in(folder: Path) -> list[psutil.Process]:
    """What runs in a folder, or below it."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(each.cwd()).is_relative_to(folder) and process.is_alive(each.pid):
                found.append(each)
    return found


def parts(training: Path) -> list[int]:
    """The workers of a training on all nodes."""
    found = []
    for each in processes_in(training):
        with contextlib.suppress(psutil.Error):
            if "TF_CONFIG" in each.environ():
                found.append(each.pid)
    return found


def agents() -> list[int]:
    """The processes of Ray that start the workers of trainings."""
    return [each.pid for each in psutil.process_iter(["name"]) if each.info["name"].startswith("ray::Agent")]


@contextlib.contextmanager
def reserved(nodes: int) -> Iterator[None]:
    """Reserve so many nodes for somebody else while the block runs."""
    import ray  # noqa: PLC0415 - its import warns

    ray.init(logging_level="ERROR", log_to_driver=False)
    try:
        ray.get(ray.util.placement_group([{"CPU": 1}] * nodes, strategy="STRICT_SPREAD").ready())
        yield
    finally:
        ray.shutdown()


def groups_left(seconds: float = 60) -> list[Any]:
    """The placement groups that nodes are still reserved for after some time."""
    import ray  # noqa: PLC0415 - its import warns

    found: list[Any] = []

    def released() -> bool:
        table = ray.util.placement_group_table()
        found[:] = [each for each in table.values() if each["state"] != "REMOVED"]
        return not found

    ray.init(logging_level="ERROR", log_to_driver=False)
    try:
        with contextlib.suppress(AssertionError):
            wait_until(released, seconds)
        return found
    finally:
        ray.shutdown()


def last_step(folder: Path) -> int:
    """Updates that the training in a folder has written down."""
    return sum(file.read_bytes().count(b"\n") for file in _training(folder, "steps.csv"))


def _training(folder: Path, name: str) -> Iterator[Path]:
    """Files or folders of the training in a project, or in the checkouts of runs."""
    yield from folder.glob(f".work/train/*/{name}")
    yield from folder.glob(f"*/.work/train/*/{name}")


def require_nothing_left(folder: Path) -> None:
    """Check that no process, reservation or lock of a training stays."""
    wait_until(lambda: not processes_in(folder) and not agents(), 120)
    assert groups_left() == []
    for file in [*folder.rglob("*.lock")]:
        with file.open() as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if a process holds it


class Killed:
    """A training on a cluster, by a command that is started again when it has ended early."""

    def __init__(
        self,
        folder: Path,
        nodes: Any,
        start: Callable[[], subprocess.Popen[bytes]],
        moments: random.Random,
    ) -> None:
        self.folder, self.moments = folder, moments
        self.log: list[tuple[str, str, int]] = []  # what was killed, when, and at which update
        self.starts = 1
        self._nodes, self._start = nodes, start
        self._command = start()

    def ended(self) -> int | None:
        """Start it again if it was lost or interrupted; returns the exit code of one that ended otherwise."""
        code = self._command.poll()
        if code in (75, 255, -signal.SIGKILL):  # 255 is that of DVC
            self.starts += 1
            self._command = self._start()
            return None
        return code

    def forget(self) -> None:
        """Begin once more."""
        shutil.rmtree(self.folder / ".work" / "train")
        self._command = self._start()

    def finish(self) -> int | None:
        """Wait for its end, without further kills."""
        wait_until(lambda: self.ended() is not None)
        return self.ended()

    def wait(self) -> str:
        """Wait for a random moment: while it starts, imports, computes or writes a checkpoint."""
        moment = self.moments.choice(["start", "imports", "updates", "checkpoint"])
        step, saved = last_step(self.folder), self._checkpoints()
        reached = {
            "start": lambda: True,
            "imports": lambda: bool(parts(self.folder)),
            "updates": lambda: last_step(self.folder) > step,
            "checkpoint": lambda: bool(self._checkpoints() - saved),
        }[moment]
        deadline = time.monotonic() + 300
        while not reached() and time.monotonic() < deadline and self.ended() is None:
            time.sleep(0.005 if moment == "checkpoint" else 0.1)
        longest_s = {"start": 4, "imports": 4, "updates": 1, "checkpoint": 0}[moment]
        time.sleep(self.moments.uniform(0, longest_s))
        return moment

    def _checkpoints(self) -> set[str]:
        """Those that are whole, and the one that is being written."""
        return {path.name for path in _training(self.folder, "*step-*")}

    def kill(self, kind: str) -> bool:
        """Kill a worker, a node, or one or all of the command's processes; returns whether there was one."""
        if kind == "node":
            node = self.moments.choice(sorted(self._nodes.worker_nodes, key=lambda each: str(each.unique_id)))
            kill(node, "raylet")
            self._nodes.remove_node(node, allow_graceful=False)
            self._nodes.add_node(num_cpus=1)  # in its place
            return True
        found = parts(self.folder) if kind == "worker" else self._drivers()
        one = self.moments.choice(found) if found else None
        victims = found if kind == "driver" and self.moments.random() < 1 / 3 else [one] * bool(found)
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        return bool(victims)

    def _drivers(self) -> list[int]:
        """DVC, the command, and its child that uses Ray."""
        workers, found = set(parts(self.folder)), []
        for each in processes_in(self.folder):
            with contextlib.suppress(psutil.Error):
                words = each.cmdline()
                if each.pid not in workers and (
                    "train" in words or "perennial.base.parallel.ray_driver" in words
                ):
                    found.append(each.pid)
        return found
