"""Trainings on a Ray cluster whose workers, nodes and command are killed at random moments.

One kill of each here, KILLS=10 kills each ten times. FAULT_SEED chooses the moments; a failure prints it.
"""

import os
import random

import pytest
from support import ray_nodes, workers

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
KILLS = min(int(os.environ.get("KILLS", "1")), 10)  # of each kind; each takes half a minute
SEED = int(os.environ.get("FAULT_SEED", "0"))
LONG = {"train.max_steps": 800, "train.steps_between_evals": 100, "checkpoints.interval_steps": 20}
KINDS = ("worker", "node", "driver")
TOGETHER = {"compute.workers": 2, "train.devices": "cpu:2", **LONG}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A head without cores, and two nodes."""
    with ray_nodes.cluster(tmp_path_factory.mktemp("nodes"), head_cpus=0, others=2) as started:
        yield started


def outcome(folder):
    """What a training leaves: weights and metrics, by the name of the file."""
    made = [path for top in ("metrics", "models") for path in sorted((folder / top).rglob("*.*"))]
    return {file.name: file.read_bytes() for file in made}


@pytest.fixture(scope="module")
def undisturbed(shared_records, tmp_path_factory):
    """What workers that are started by hand leave."""
    values = {**TOGETHER, "compute.workers": 1, "train.devices": "cpu:1"}
    folder = workers.copy(shared_records, tmp_path_factory.mktemp("undisturbed"), values)
    assert workers.ends(workers.start_together(folder, 2)) == [0, 0], workers.said(folder)
    return outcome(folder)


def test_a_training_whose_workers_nodes_and_command_are_killed_ends_with_the_very_same_weights(
    shared_records, nodes, undisturbed, tmp_path
):
    folder = workers.copy(shared_records, tmp_path / "killed", {**TOGETHER, "compute.engine": "ray"})
    training = ray_nodes.Killed(folder, nodes, lambda: workers.start(folder), random.Random(SEED))
    kinds = training.moments.sample([*KINDS] * KILLS, len(KINDS) * KILLS)
    while kinds:
        moment = training.wait()
        if training.ended() == 0:  # the kills were too late for its last minute
            assert outcome(folder) == undisturbed
            training.forget()
        elif training.kill(kinds[-1]):
            training.log.append((kinds.pop(), moment, ray_nodes.last_step(folder)))
    assert training.finish() == 0, (SEED, training.log, workers.said(folder))
    print(f"FAULT_SEED {SEED}: {training.log}; started {training.starts} times")
    assert outcome(folder) == undisturbed, (SEED, training.log)
    ray_nodes.require_nothing_left(folder)
