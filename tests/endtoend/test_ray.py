"""Trainings on a Ray cluster that `dvc repro` and a deployment's run start, with kills of their processes.

KILLS kills of each kind, two by default; FAULT_SEED chooses the moments.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ray_nodes
from support.checkout import BIN, Beside, Checkout, Server, wait_until

from perennial.base.files import sha256

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
KILLS = int(os.environ.get("KILLS", "2"))
SEED = int(os.environ.get("FAULT_SEED", "0"))
KINDS = ("worker", "node", "driver")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head without cores, and two nodes."""
    with ray_nodes.cluster(tmp_path_factory.mktemp("nodes"), head_cpus=0, others=2) as started:
        yield started


@pytest.fixture
def project(make_checkout: Callable[[str], Checkout]) -> Checkout:
    """A project whose training has two workers on Ray, and makes a checkpoint every 20 updates."""
    made = make_checkout("ray")
    made.set("compute", engine="ray", workers=2)
    made.set("train", epochs=40, devices="cpu:2")
    made.set("checkpoints", interval_steps=20)
    return made


@pytest.fixture
def weights(project: Checkout) -> dict[str, str]:
    """The digests of the weights that two processes on this machine make."""
    project.set("compute", engine="processes")
    project.must("dvc", "repro", "train")
    made = digests(project.folder)
    project.must("rm", "-r", "models", ".work/train", ".dvc/cache", "dvc.lock")
    project.set("compute", engine="ray")
    return made


def digests(folder: Path) -> dict[str, str]:
    """Of all files that a training makes of its weights."""
    files = [*(folder / "models" / "weights").rglob("*"), folder / "metrics" / "training.json"]
    return {file.name: sha256(file) for file in files if file.is_file()}


def disturb(training: ray_nodes.Killed) -> None:
    """Kill the processes of a training, each kind KILLS times."""
    kinds = training.moments.sample([*KINDS] * KILLS, len(KINDS) * KILLS)
    while kinds:
        wait_until(lambda: ray_nodes.parts(training.folder) or training.ended() is not None)
        moment = training.wait()
        assert training.ended() is None, training.log
        if training.kill(kinds[-1]):
            training.log.append((kinds.pop(), moment, ray_nodes.last_step(training.folder)))


def test_dvc_repro_whose_processes_are_killed_makes_the_very_same_weights(
    project: Checkout, weights: dict[str, str], nodes: Any
) -> None:
    def repro() -> subprocess.Popen[bytes]:
        environment = project.environment(RAY_ADDRESS=os.environ["RAY_ADDRESS"])
        with (project.home / "log").open("ab") as log:
            return subprocess.Popen(
                [str(BIN / "dvc"), "repro", "train"],
                cwd=project.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )

    training = ray_nodes.Killed(project.folder, nodes, repro, random.Random(SEED))
    disturb(training)
    assert training.finish() == 0, ((project.home / "log").read_text()[-3000:], training.log)
    print(f"FAULT_SEED {SEED}: {training.log}; started {training.starts} times")
    assert digests(project.folder) == weights
    ray_nodes.require_nothing_left(project.folder)


def test_a_deployed_run_whose_processes_are_killed_makes_the_very_same_weights(
    project: Checkout, weights: dict[str, str], nodes: Any, server: Server, tmp_path: Path
) -> None:
    home, repository = tmp_path / "worker", tmp_path / "ray.git"
    (home / "runs").mkdir(parents=True)
    environment = {
        "PREFECT_API_URL": server.url,
        "PERENNIAL_HOME": str(home),
        "PERENNIAL_REPOSITORY": str(repository),
        "RAY_ADDRESS": os.environ["RAY_ADDRESS"],
    }
    project.must("dvc", "remote", "add", "-d", "store", str(tmp_path / "store"))
    project.commit("Ray")
    project.must("git", "init", "-q", "--bare", "-b", "main", str(repository))
    project.must("git", "remote", "add", "origin", str(repository))
    project.must("git", "push", "-q", "origin", "main")
    project.must(sys.executable, "-m", "tasks.deploy", **environment)
    seen = project.environment(**environment, PREFECT_WORKER_QUERY_SECONDS="1")
    with Beside(["python", "-m", "tasks.worker", "--pool", "cpu"], project.folder, seen) as worker:

        def run() -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "perennial", "run", "nightly", "--watch", "--json"]
            with (tmp_path / "log").open("wb") as log:
                return subprocess.Popen(
                    command, cwd=project.folder, env=seen, stdout=log, stderr=subprocess.DEVNULL
                )

        training = ray_nodes.Killed(home / "runs", nodes, run, random.Random(SEED))
        disturb(training)
        assert training.finish() == 0, (worker.log.read_text()[-3000:], training.log)
        print(f"FAULT_SEED {SEED}: {training.log}; started {training.starts} times")
        said = (tmp_path / "log").read_text()
        made = home / "runs" / str(json.loads(said[said.index("{") :])["id"])
        assert digests(made) == weights
        ray_nodes.require_nothing_left(made)
