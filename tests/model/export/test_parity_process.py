"""The fork of the export stage that compares predictions."""

import os
import subprocess
import sys
import time
from pathlib import Path

from support import forks

STAGE = """
import os, sys
from pathlib import Path
from perennial.base.processes.tensorflow import import_with_tensorflow

real, work = os.fork, Path(sys.argv[1])

def fork():
    from tensorflow.python.eager import context
    print("nothing ran:", context.context()._context_handle is None, flush=True)
    return real()

os.fork = fork
import_with_tensorflow("perennial.stages.export", work)
import tensorflow as tf
from perennial.model.export import parity_process
print("operation:", int(tf.reduce_sum(tf.ones((2, 2)) @ tf.ones((2, 2)))))
job = dict(export=str(work / "absent"), records="r", predictions=str(work / "none.npz"), formats=[],
           devices="cpu:1", channels=1, batch_size=2)
"""
ANSWERED = """
with parity_process.started(work / "parity.log") as compare:
    try:
        compare(job)
    except Exception as error:
        print(type(error).__name__, "none.npz" in str(error))
parity_process.fork(work / "again.log")
print("forked after an operation:", bool(parity_process._forked))
"""
LEFT = """
print(parity_process._forked[0][0], flush=True)
os.kill(os.getpid(), 9)
"""


def run(code: str, work: Path, *python: str) -> subprocess.CompletedProcess[str]:
    without_gpus = {**os.environ, "PERENNIAL_GPUS": ""}
    command = [*python, "-c", STAGE + code, str(work)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=without_gpus)


def test_the_fork_is_made_before_tensorflow_runs_and_answers_after_the_stage_has_run_operations(tmp_path):
    done = run(ANSWERED, tmp_path, sys.executable)
    assert done.stdout.splitlines() == [
        "nothing ran: True", "operation: 8", "DataError True", "forked after an operation: False",
    ], done.stderr[-2000:]  # fmt: skip


def test_the_fork_ends_with_a_stage_that_is_killed(tmp_path):
    fork = int(run(LEFT, tmp_path, forks.with_tensorflow(), "-m").stdout.splitlines()[-1])
    deadline = time.monotonic() + 30
    while Path(f"/proc/{fork}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{fork}").exists()
