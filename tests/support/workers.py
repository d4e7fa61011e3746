"""Trainings in processes of their own: alone, or several that train together on this machine."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from support.checkout import free_port
from support.parameters import change_params
from support.training import ROOT, prepare, table

# All that sees how the examples are shared: distortions, dropout, averages, weight decay, and a last batch of
# an epoch with a single example, so that all replicas but one get none.
SHARED: Mapping[str, object] = {
    "dataset.validation_fraction": 0.13, "preprocessing.name": "cifarnet", "model.dropout": 0.4,
    "train.batch_size": 96, "train.max_steps": 20, "train.steps_between_evals": 10, "train.keep": "best",
    "train.optimizer": "adam", "train.learning_rate": 0.001, "train.averages.decay": 0.99,
    "train.weight_decay": 0.004, "train.devices": "cpu:1", "checkpoints.interval_steps": 5,
}  # fmt: skip
LIMIT_S = 900


def records(folder: Path) -> Path:
    """The folder, with validated records for trainings with SHARED."""
    prepare(folder, SHARED)
    report = json.loads((folder / "data" / "records" / "manifest.json").read_text())
    assert report["splits"]["train"]["examples"] % 96 == 1
    return folder


def copy(source: Path, folder: Path, values: Mapping[str, object] | None = None) -> Path:
    """A folder with the records of another, where a training with these parameters can start."""
    shutil.copytree(source / "data", folder / "data")
    shutil.copy(source / "params.yaml", folder)
    change_params(folder / "params.yaml", values or {})
    return folder


def addresses(count: int) -> list[str]:
    """Free ones on this machine."""
    return [f"127.0.0.1:{free_port()}" for _ in range(count)]


def start(
    folder: Path, index: int = 0, among: Sequence[str] = (), *, pod: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A training in a folder: worker number `index` of those at some addresses, a pod, or one alone."""
    environment = {**os.environ, **(pod or {}), "PYTHONPATH": str(ROOT / "src")}
    if among:
        task = {"type": "worker", "index": index}
        environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(among)}, "task": task})
    with (folder / f"worker-{index}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "perennial", "train"], cwd=folder, env=environment, stdout=log, stderr=log
        )


def pods(count: int) -> list[dict[str, str]]:
    """The variables of the pods of an Indexed Job, whose addresses are free ones on this machine."""
    while True:
        pattern = f"127.0.0.1:{free_port() // 10}{{index}}"
        with ExitStack() as probes, suppress(OSError):
            for index in range(count):
                host, port = pattern.format(index=index).split(":")
                probes.enter_context(socket.create_server((host, int(port))))
            given = {"PERENNIAL_CLUSTER_HOSTS": pattern, "PERENNIAL_CLUSTER_SIZE": str(count)}
            return [given | {"JOB_COMPLETION_INDEX": str(index)} for index in range(count)]


def start_together(folder: Path, count: int) -> list[subprocess.Popen[bytes]]:
    """So many workers in one folder."""
    among = addresses(count)
    return [start(folder, index, among) for index in range(count)]


def ends(processes: Sequence[subprocess.Popen[bytes]], limit_s: float = LIMIT_S) -> list[int | None]:
    """The exit codes; None of what has not ended by then, which is killed."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        time.sleep(0.05)
    codes = [process.poll() for process in processes]
    for process in processes:
        process.kill()
        process.wait()
    return codes


def said(folder: Path, index: int = 0) -> str:
    """What a worker wrote to its terminal."""
    return (folder / f"worker-{index}.log").read_text(encoding="utf-8")


def steps(folder: Path) -> list[dict[str, float]]:
    """What was written down of each update of the one training in a folder."""
    (file,) = (folder / ".work" / "train").glob("*/steps.csv")
    return table(file)


def wait_for_step(folder: Path, step: int, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Returns when an update has been written down."""
    deadline = time.monotonic() + LIMIT_S
    while not any(len(table(file)) >= step for file in (folder / ".work" / "train").glob("*/steps.csv")):
        assert all(process.poll() in (None, 0) for process in processes), said(folder)
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def difference(one: Path, other: Path) -> float:
    """The largest of a loss between two trainings of equally many updates."""
    pairs = zip(steps(one), steps(other), strict=True)
    return max(abs(a[name] - b[name]) for a, b in pairs for name in ("loss", "total_loss"))
