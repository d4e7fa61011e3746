"""Trainings that are killed at random moments and resumed; two kills here, 200 with `make faults`.

The moments come from FAULT_SEED, which a failure prints: the same seed kills at the same moments again.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.checkout import wait_until
from support.parameters import change_params

from perennial import config, files
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.validate import validate

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("KILLS", "2"))
SEED = int(os.environ.get("FAULT_SEED", "0"))
# Everything that has a state: averages, the best weights, two phases with an optimizer each, dropout.
SMALL = {
    "train.epochs": 4,
    "train.epochs_between_evals": 1,
    "train.stop_threshold": None,
    "train.keep": "best",
    "train.averages.decay": 0.99,
    "train.head.steps": 15,
    "train.schedule.name": "cosine",
    "checkpoints.interval_steps": 4,
    "checkpoints.max_to_keep": 2,
}
RUNNING_S = 2.5  # how long the updates, evaluations and checkpoints of a run take, about
STARTED_S = 900


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with validated records."""
    folder = tmp_path_factory.mktemp("kills")
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(folder / "params.yaml", SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        parameters = config.load(Path("params.yaml"))
        for stage in (download, convert, validate):
            stage(parameters)
    return folder


def start(folder, *options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with (folder / "train.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "perennial", "train", *options],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
        )


def outcome(folder):
    """What a finished training leaves, but for logs."""
    (steps,) = (folder / ".work" / "train").glob("*/steps.csv")
    made = [steps, *sorted((folder / "metrics").rglob("*.*")), *sorted((folder / "models").rglob("*.*"))]
    return {file.name: file.read_bytes() for file in made}


def wait_for_checkpoint(process, folder):
    """Returns once there is a checkpoint, or the process has ended."""
    saved = (folder / ".work" / "train").glob
    wait_until(lambda: process.poll() is not None or any(saved("*/step-*")))


def wait_for_updates(process, folder):
    """Returns once a process has written down updates of its own, or has ended."""
    deadline, fewest = time.monotonic() + STARTED_S, sys.maxsize
    while process.poll() is None:
        assert time.monotonic() < deadline, (folder / "train.log").read_text()[-2000:]
        written = sum(file.stat().st_size for file in (folder / ".work" / "train").glob("*/steps.csv"))
        if written > fewest > 0:
            return
        fewest = min(fewest, written) or fewest
        time.sleep(0.01)


def test_a_training_that_is_killed_again_and_again_ends_with_the_very_same_weights(prepared):
    moments = random.Random(SEED)
    assert start(prepared).wait() == 0
    expected = outcome(prepared)
    kills, process = 0, start(prepared, "--clean")
    while kills < KILLS:
        wait_for_updates(process, prepared)
        if not kills:  # so that one is resumed
            wait_for_checkpoint(process, prepared)
        time.sleep(moments.uniform(0, RUNNING_S))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            process = start(prepared)
            continue
        assert process.returncode == 0, (prepared / "train.log").read_text()[-2000:]
        assert outcome(prepared) == expected, f"FAULT_SEED={SEED}, after {kills} kills"
        process = start(prepared, "--clean")
    assert process.wait() == 0, (prepared / "train.log").read_text()[-2000:]
    assert outcome(prepared) == expected, f"FAULT_SEED={SEED}, after {kills} kills"
    assert "resumed from step" in (prepared / "train.log").read_text()


def interrupted(folder):
    """The exit code of a new training that gets SIGTERM; 0 where it was faster than the signal."""
    process = start(folder, "--clean")
    wait_for_updates(process, folder)
    process.send_signal(signal.SIGTERM)
    code = process.wait()
    assert code in (0, 75, -signal.SIGTERM), (folder / "train.log").read_text()[-2000:]
    return code


def test_a_training_that_is_told_to_end_saves_and_says_so(prepared):
    shutil.rmtree(prepared / ".work" / "train", ignore_errors=True)
    assert start(prepared).wait() == 0
    expected = files.read_json(prepared / "metrics" / "training.json")
    while interrupted(prepared) != 75:
        pass
    assert "ended the training; saved at step" in (prepared / "train.log").read_text()
    assert start(prepared).wait() == 0
    assert files.read_json(prepared / "metrics" / "training.json") == expected
