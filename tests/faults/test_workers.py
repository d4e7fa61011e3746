"""Several processes that train together, and what becomes of the others when one is lost.

One kill of one of two here; FAULTS=all adds the rest.
"""

import os
import shutil
import signal
from itertools import count

import pytest
from support import workers

from perennial.base import documents
from perennial.model.training import checkpoints

LONG = {"train.max_steps": 150, "train.steps_between_evals": 50, "checkpoints.interval_steps": 20}
rest = pytest.mark.skipif(os.environ.get("FAULTS") != "all", reason="only with FAULTS=all")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder with validated records."""
    return workers.records(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def unbroken(source, tmp_path_factory):
    """The folder of two workers that nobody disturbed."""
    folder = workers.copy(source, tmp_path_factory.mktemp("unbroken"), LONG)
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


@rest
@pytest.mark.parametrize("count", [2, 3])
def test_workers_learn_what_one_process_learns_and_only_the_first_writes(source, tmp_path, count):
    remote = {"checkpoints.remote": str(tmp_path / "remote")}
    together, alone = (
        workers.copy(source, tmp_path / "together", remote),
        workers.copy(source, tmp_path / "alone"),
    )
    processes = [*workers.start_together(together, count), workers.start(alone)]
    assert workers.ends(processes) == [0] * len(processes)
    assert workers.difference(together, alone) < 1e-4
    assert "checkpoint of step" in workers.said(together)
    assert "checkpoint of step" not in workers.said(together, 1)
    assert "copied step-" in workers.said(together)
    assert "copied step-" not in workers.said(together, 1)


@pytest.mark.slow
def test_workers_mix_images_of_each_other_as_one_process_does_and_resume(source, tmp_path):
    mixed = {"train.augmentation.mixup": 0.2, "train.augmentation.cutmix": 1.0}
    together, alone = (
        workers.copy(source, tmp_path / "together", mixed),
        workers.copy(source, tmp_path / "alone", mixed),
    )
    processes = [*workers.start_together(together, 2), workers.start(alone)]
    assert workers.ends(processes) == [0, 0, 0], workers.said(together)
    assert workers.difference(together, alone) < 1e-4
    unbroken = record(together)
    (folder,) = (together / ".work" / "train").iterdir()
    (folder / "finished").unlink()
    for path in checkpoints.committed(folder):
        if checkpoints.step_of(path) > 10:
            shutil.rmtree(path)
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
    source, unbroken, tmp_path, number, lost
):
    for number_of_try in count():
        folder = workers.copy(source, tmp_path / f"broken {number_of_try}", LONG)
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
def test_workers_that_a_signal_ends_save_every_update(source, unbroken, tmp_path, signalled):
    folder = workers.copy(source, tmp_path / "signalled", LONG)
    processes = workers.start_together(folder, 2)
    workers.wait_for_step(folder, 45, processes)
    for index in signalled:
        processes[index].send_signal(signal.SIGTERM)
    assert workers.ends(processes) == [75, 75]
    assert f"saved at step {len(workers.steps(folder))};" in workers.said(folder)
    assert resumed(folder) == record(unbroken)


@rest
def test_workers_with_other_parameters_do_not_begin(source, tmp_path):
    among = workers.addresses(2)
    folders = [workers.copy(source, tmp_path / f"seed{seed}", {"train.seed": seed}) for seed in (0, 1)]
    processes = [workers.start(folder, index, among) for index, folder in enumerate(folders)]
    assert workers.ends(processes) == [2, 2]
    assert "worker 1 and worker 0 have different parameters" in workers.said(folders[1], 1)


@rest
def test_workers_that_do_not_see_the_checkpoints_do_not_begin(source, unbroken, tmp_path):
    among = workers.addresses(2)
    private = workers.copy(source, tmp_path / "private", LONG)
    shutil.copytree(unbroken, tmp_path / "shared")
    processes = [
        workers.start(folder, index, among) for index, folder in enumerate((tmp_path / "shared", private))
    ]
    assert workers.ends(processes) == [2, 2]
    assert "worker 0 continues from step 150, worker 1 from step 0" in workers.said(private, 1)
