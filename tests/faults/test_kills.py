"""Trainings that are killed at random moments and resumed; two kills here, 200 with `make faults`.

The moments come from FAULT_SEED, which a failure prints: the same seed kills at the same moments again.
"""

import contextlib
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.checkout import wait_until
from support.parameters import change_params

from perennial.base import config
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.validate import validate

pytestmark = pytest.mark.timing

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
KILLS = int(os.environ.get("KILLS", "2"))
SEED = int(os.environ.get("FAULT_SEED", "0"))
# Everything that has a state: averages, the best weights, two phases with an optimizer each, dropout.
SMALL = {
    "train.epochs": 4, "train.epochs_between_evals": 1, "train.stop_threshold": None, "train.keep": "best",
    "train.averages.decay": 0.99, "train.head.steps": 15, "train.schedule.name": "cosine",
    "checkpoints.interval_steps": 4, "checkpoints.max_to_keep": 2,
}  # fmt: skip
RUNNING_S = 2.5  # how long the updates, evaluations and checkpoints of a run take, about
STARTED_S = 900
# Forks a training for each line, so that all share the import of TensorFlow; prints its process and exit code.
SERVER = """
import logging, os, sys
from pathlib import Path
from perennial.base import config
from perennial.stages.train import train

logging.basicConfig(level=logging.INFO)
for line in sys.stdin:
    if not (child := os.fork()):
        train(config.load(Path("params.yaml")), clean="--clean" in line)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Trainings:
    """Trainings in one folder, one after the other, each in a process that can be killed."""

    def __init__(self, folder):
        self.folder = folder
        with (folder / "train.log").open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-c", SERVER],
                cwd=folder,
                env=ENVIRONMENT,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def start(self, *options):
        self._server.stdin.write(" ".join(options).encode() + b"\n")
        return int(self._server.stdout.readline())

    def has_ended(self):
        return bool(select.select([self._server.stdout], [], [], 0)[0])

    def code(self):
        return int(self._server.stdout.readline())

    def close(self):
        self._server.kill()
        self._server.communicate()

    def log(self):
        return (self.folder / "train.log").read_text()

    def outcome(self):
        """What a finished training leaves, but for logs."""
        (steps,) = (self.folder / ".work" / "train").glob("*/steps.csv")
        made = [path for top in ("metrics", "models") for path in sorted((self.folder / top).rglob("*.*"))]
        return {file.name: file.read_bytes() for file in (steps, *made)}

    def wait_for_updates(self):
        """Returns once a training has written down updates of its own, or has ended."""
        deadline, fewest = time.monotonic() + STARTED_S, sys.maxsize
        while not self.has_ended():
            assert time.monotonic() < deadline, self.log()[-2000:]
            written = sum(file.stat().st_size for file in (self.folder / ".work" / "train").glob("*/steps.csv"))
            if written > fewest > 0:
                return
            fewest = min(fewest, written) or fewest
            time.sleep(0.01)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Of validated records, in a process that has imported TensorFlow."""
    folder = tmp_path_factory.mktemp("kills")
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(folder / "params.yaml", SMALL)
    with contextlib.chdir(folder):
        parameters = config.load(Path("params.yaml"))
        for stage in (download, convert, validate):
            stage(parameters)
    trainings = Trainings(folder)
    yield trainings
    trainings.close()


@pytest.fixture(scope="module")
def expected(trainings):
    """What a training leaves that nobody disturbs."""
    trainings.start()
    assert trainings.code() == 0, trainings.log()[-2000:]
    return trainings.outcome()


@pytest.mark.slow
def test_a_training_that_is_killed_again_and_again_ends_with_the_very_same_weights(trainings, expected):
    moments = random.Random(SEED)
    kills, process = 0, trainings.start("--clean")
    while kills < KILLS:
        trainings.wait_for_updates()
        if not kills:  # so that one is resumed
            saved = (trainings.folder / ".work" / "train").glob
            wait_until(lambda found=saved: trainings.has_ended() or any(found("*/step-*")))
        time.sleep(moments.uniform(0, RUNNING_S))
        if not trainings.has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        code = trainings.code()
        if code == -signal.SIGKILL:
            kills += 1
            process = trainings.start()
            continue
        assert code == 0, trainings.log()[-2000:]
        assert trainings.outcome() == expected, f"FAULT_SEED={SEED}, after {kills} kills"
        process = trainings.start("--clean")
    assert trainings.code() == 0, trainings.log()[-2000:]
    assert trainings.outcome() == expected, f"FAULT_SEED={SEED}, after {kills} kills"
    assert "resumed from step" in trainings.log()
