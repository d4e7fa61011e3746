"""Several processes that train together, and what becomes of the others when one is lost."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from itertools import count

import pytest
from support import workers
from support.training import rewind

from perennial.base import documents

LONG = {"train.max_steps": 150, "train.steps_between_evals": 50, "checkpoints.interval_steps": 20}
rest = pytest.mark.skipif(os.environ.get("FAULTS") != "all", reason="only with FAULTS=all")


@pytest.fixture(scope="module")
def unbroken(shared_records, tmp_path_factory):
    """The folder of two workers that nobody disturbed."""
    folder = workers.copy(shared_records, tmp_path_factory.mktemp("unbroken"), LONG)
    assert workers.ends(workers.start_together(folder, 2)) == [0, 0], workers.said(folder)
    return folder


def record(folder):
    """What a training that has ended says of itself: evaluations, and the digest of its weights."""
    return documents.read_json(folder / "metrics" / "training.json")


def resumed(folder):
    """The record of a training whose workers have been started again."""
    assert workers.ends(workers.start_together(folder, 2)) == [0, 0], workers.said(folder)
    assert "resumed from step" in workers.said(folder)
    return record(folder)


@pytest.mark.usefixtures("forked")
def test_a_pod_without_its_peers_gives_its_gpu_back(shared_records, tmp_path):
    folder = workers.copy(shared_records, tmp_path / "alone")
    first, second = workers.pods(2)
    address = second["PERENNIAL_CLUSTER_HOSTS"].format(index=1)
    waiting = workers.start(folder, pod=first | {"PERENNIAL_CLUSTER_WAIT_S": "1"})
    assert workers.ends([waiting]) == [75]
    assert re.search(
        rf"worker 0 of 2 waited \d+ s for worker 1 at {address} \(Connection refused\)", workers.said(folder)
    )
    assert "Traceback" not in workers.said(folder)


@pytest.mark.slow
def test_a_worker_whose_peer_never_connects_is_killed_and_does_not_fail(shared_records):
    # The peer answers, and is no worker: TensorFlow waits for it forever.
    program = (
        "from pathlib import Path\n"
        "from perennial.base import config\n"
        "from perennial.base.devices import cluster\n"
        "from perennial.model.training import distributed\n"
        "distributed.CONNECTING_S = 2\n"
        "distributed.strategy(config.load(Path('params.yaml')).train, cluster.this_worker())\n"
    )
    pod = workers.pods(2)[1]
    peer = pod["PERENNIAL_CLUSTER_HOSTS"].format(index=0)
    with socket.create_server(("127.0.0.1", int(peer.partition(":")[2]))):
        ended = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **pod, "PYTHONPATH": str(workers.ROOT / "src")},
            cwd=shared_records, timeout=workers.LIMIT_S, check=False,
        )  # fmt: skip
    assert ended.returncode == -signal.SIGALRM


@rest
@pytest.mark.parametrize("count", [2, 3])
def test_workers_learn_what_one_process_learns_and_only_the_first_writes(shared_records, tmp_path, count):
    remote = {"checkpoints.remote": str(tmp_path / "remote")}
    together, alone = (
        workers.copy(shared_records, tmp_path / "together", remote),
        workers.copy(shared_records, tmp_path / "alone"),
    )
    processes = [*workers.start_together(together, count), workers.start(alone)]
    assert workers.ends(processes) == [0] * len(processes)
    assert workers.difference(together, alone) < 1e-4
    assert "checkpoint of step" in workers.said(together)
    assert "checkpoint of step" not in workers.said(together, 1)
    assert "copied step-" in workers.said(together)
    assert "copied step-" not in workers.said(together, 1)


@pytest.mark.slow
def test_workers_mix_images_of_each_other_as_one_process_does_and_resume(shared_records, tmp_path):
    mixed = {"train.augmentation.mixup": 0.2, "train.augmentation.cutmix": 1.0}
    together, alone = (
        workers.copy(shared_records, tmp_path / "together", mixed),
        workers.copy(shared_records, tmp_path / "alone", mixed),
    )
    processes = [*workers.start_together(together, 2), workers.start(alone)]
    assert workers.ends(processes) == [0, 0, 0], workers.said(together)
    assert workers.difference(together, alone) < 1e-4
    unbroken = record(together)
    rewind(10, together)
    assert resumed(together) == unbroken


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "lost"),
    [
        (signal.SIGKILL, 1),
        pytest.param(signal.SIGKILL, 0, marks=rest),
        pytest.param(signal.SIGSTOP, 1, marks=rest),
        pytest.param(signal.SIGSTOP, 0, marks=rest),
    ],
)
def test_a_worker_that_is_lost_ends_the_others_and_all_resume_to_the_very_same_weights(
    shared_records, unbroken, tmp_path, number, lost
):
    for number_of_try in count():
        folder = workers.copy(shared_records, tmp_path / f"broken {number_of_try}", LONG)
        processes = workers.start_together(folder, 2)
        workers.wait_for_step(folder, 45, processes)
        processes[lost].send_signal(number)
        code = workers.ends([processes[1 - lost]])
        workers.ends([processes[lost]], 0)
        if code != [0]:  # else the training was faster than the signal
            break
    assert code == [75], workers.said(folder, 1 - lost)
    assert "the loss of" in workers.said(folder, 1 - lost)
    assert resumed(folder) == record(unbroken)


@rest
@pytest.mark.parametrize("signalled", [(0,), (1,), (0, 1)])
def test_workers_that_a_signal_ends_save_every_update(shared_records, unbroken, tmp_path, signalled):
    folder = workers.copy(shared_records, tmp_path / "signalled", LONG)
    processes = workers.start_together(folder, 2)
    workers.wait_for_step(folder, 45, processes)
    for index in signalled:
        processes[index].send_signal(signal.SIGTERM)
    assert workers.ends(processes) == [75, 75]
    assert f"saved at step {len(workers.steps(folder))};" in workers.said(folder)
    assert resumed(folder) == record(unbroken)


@rest
def test_workers_with_other_parameters_do_not_begin(shared_records, tmp_path):
    among = workers.addresses(2)
    folders = [workers.copy(shared_records, tmp_path / f"seed{seed}", {"train.seed": seed}) for seed in (0, 1)]
    processes = [workers.start(folder, index, among) for index, folder in enumerate(folders)]
    assert workers.ends(processes) == [2, 2]
    assert "worker 1 and worker 0 have different parameters" in workers.said(folders[1], 1)


@rest
def test_workers_that_do_not_see_the_checkpoints_do_not_begin(shared_records, unbroken, tmp_path):
    among = workers.addresses(2)
    private = workers.copy(shared_records, tmp_path / "private", LONG)
    shutil.copytree(unbroken, tmp_path / "shared")
    processes = [
        workers.start(folder, index, among) for index, folder in enumerate((tmp_path / "shared", private))
    ]
    assert workers.ends(processes) == [2, 2]
    assert "worker 0 continues from step 150, worker 1 from step 0" in workers.said(private, 1)
