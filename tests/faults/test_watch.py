"""A watch beside a training in a process of its own, which saves and removes checkpoints all the time.

With FAULTS=all the watch is a process too and killed 20 times, at moments that come from FAULT_SEED.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.training import parameters, prepare, table

from perennial.base import config
from perennial.model.training import checkpoints
from perennial.model.training.sidecar import watch

SOURCE = Path(__file__).parents[2] / "src"
KILLS = 20 if os.environ.get("FAULTS") == "all" else 0
SEED = int(os.environ.get("FAULT_SEED", "0"))
EVERY, SAVED = (60, 400) if KILLS else (4, 20)  # steps between two checkpoints, and how many there are
VALUES = {
    "train.max_steps": EVERY * SAVED,
    "train.steps_between_evals": EVERY,
    "train.optimizer": "adam",
    "train.learning_rate": 0.001,
    "train.averages.decay": 0.9,
    "checkpoints.interval_steps": EVERY,
    "checkpoints.max_to_keep": 1,
}


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """A folder with validated records and parameters of a training with many checkpoints."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    parameters(VALUES)
    return tmp_path


def start(folder, *command):
    with (folder / f"{command[0]}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "perennial", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=log,
        )


def results(folder):
    files = (folder / ".work" / "watch").glob("*/validation.jsonl")
    return [
        json.loads(line)
        for file in files
        for line in file.read_text().splitlines(keepends=True)
        if line[-1] == "\n"
    ]


def watch_and_be_killed(folder, training):
    """Watches until the training has ended, but is killed again and again; what it prints at last."""
    chosen = random.Random(SEED)
    command = ("evaluate", "--watch", ".work/train", "--every", "0.05", "--json")
    for _ in range(KILLS):
        known = len(results(folder))
        with start(folder, *command) as watched:
            while len(results(folder)) == known and watched.poll() is None and training.poll() is None:
                time.sleep(0.02)
            time.sleep(chosen.uniform(0, 2))
            watched.kill()
    with start(folder, *command) as watched:
        return watched.communicate()[0]


def watch_here(capsys):
    """The same without a kill, and without a process that has to import TensorFlow."""
    checked = config.load(Path("params.yaml"))
    watch(
        checked,
        checked.paths.work / "train",
        split="validation",
        once=False,
        every_s=0.05,
        max_batches=None,
        as_json=True,
    )
    return capsys.readouterr().out


@pytest.mark.slow
def test_each_checkpoint_that_survives_is_scored_once_as_the_training_scores_it(digits, capsys):
    with start(digits, "train") as trained:
        printed = watch_and_be_killed(digits, trained) if KILLS else watch_here(capsys)
        assert trained.wait(1800) == 0, (digits / "train.log").read_text()
    scored = json.loads(printed)["results"]
    times = Counter(each["checkpoint"] for each in scored)
    (folder,) = (digits / ".work" / "train").glob("*/")
    print(f"FAULT_SEED={SEED}: {len(scored)} of {SAVED} checkpoints scored; {KILLS} kills")
    assert set(times.values()) == {1}
    assert {path.name for path in checkpoints.committed(folder)} <= times.keys()
    assert scored == results(digits)
    own = {row["step"]: row for row in table(digits / "metrics/curves/validation.csv")}
    names = ("accuracy", "loss", "recall_at_5")
    expected = [[own[each["step"]][name] for name in names] for each in scored]
    np.testing.assert_allclose([[each[name] for name in names] for each in scored], expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_signal_ends_a_watch_that_waits_with_the_code_for_resumable(digits):
    with start(digits, "evaluate", "--watch", ".work/train", "--every", "600") as watched:
        log = digits / "evaluate.log"
        while "looking every 600 s" not in log.read_text() and watched.poll() is None:
            time.sleep(0.1)
        watched.send_signal(signal.SIGTERM)
        assert watched.wait(600) == 75, log.read_text()
    assert "SIGTERM" in log.read_text()
