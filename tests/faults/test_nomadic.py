"""Trainings that are killed on one machine and continue on another, with nothing but a remote in common.

One kill in the middle of a copy to S3, with and without requests that fail. The moment
comes from FAULT_SEED, which a failure prints.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys

import pytest
from faults.test_kills import SMALL
from support.parameters import change_params
from support.s3 import CREDENTIALS, FAST_FAULTS
from support.training import ROOT

pytestmark = pytest.mark.timing

SEED = int(os.environ.get("FAULT_SEED", "0"))
SHORT = {"train.epochs": 2, "train.head.steps": 0}
# Forks a training for each folder with variables that it reads, so that all share the imports; prints process,
# then the exit code.
SERVER = """
import functools, json, logging, os, sys
from pathlib import Path
import boto3, botocore.session
from perennial.base import config
from perennial.stages.train import train

botocore.session.create_loader = functools.cache(botocore.session.create_loader)
boto3.client("s3", region_name="us-east-1")
for line in sys.stdin:
    folder, variables = json.loads(line)
    if not (child := os.fork()):
        os.environ.update(variables)
        os.chdir(folder)
        os.dup2(os.open("train.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        logging.basicConfig(level=logging.INFO, force=True)
        train(config.load(Path("params.yaml")))
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Machines:
    """Trainings on machines, each with a folder of its own."""

    def __init__(self, base, records):
        self.base, self._records, self.variables = base, records, {}
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TF_CPP_MIN_LOG_LEVEL": "3"},
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def new(self, name, remote):
        """The folder of a machine with records alone."""
        folder = self.base / name
        shutil.copytree(self._records / "data", folder / "data")
        shutil.copy(ROOT / "params.yaml", folder)
        change_params(
            folder / "params.yaml",
            {**SMALL, **SHORT, "checkpoints.remote": remote, "checkpoints.remote_interval_s": 0.0},
        )
        return folder

    def start(self, folder):
        """Starts a training; returns its process."""
        self._server.stdin.write(f"{json.dumps([str(folder), self.variables])}\n".encode())
        return int(self._server.stdout.readline())

    def end(self):
        """Waits for its end; returns its exit code."""
        return int(self._server.stdout.readline())

    def close(self):
        self._server.kill()
        self._server.communicate()


def outcome(folder):
    """What a finished training leaves, but for logs."""
    (steps,) = (folder / ".work" / "train").glob("*/steps.csv")
    made = [path for top in ("metrics", "models") for path in sorted((folder / top).rglob("*.*"))]
    return {file.name: file.read_bytes() for file in (steps, *made)}


def logged(folder):
    return (folder / "train.log").read_text()


@pytest.fixture(scope="module")
def machines(digits, tmp_path_factory):
    machines = Machines(tmp_path_factory.mktemp("machines"), digits)
    yield machines
    machines.close()


@pytest.fixture
def remote(bucket, proxy, machines):
    """A place in S3, which the trainings of `machines` reach through the proxy."""
    machines.variables = {**CREDENTIALS, "AWS_ENDPOINT_URL": proxy.url}
    proxy.faults = FAST_FAULTS
    return f"{bucket.url}/work"


@pytest.fixture(scope="module")
def unbroken(machines):
    """What a training leaves that nobody disturbs."""
    return outcome(continues(machines, "unbroken", None))


def continues(machines, name, remote):
    """The folder of another machine, where a training has ended."""
    folder = machines.new(name, remote)
    machines.start(folder)
    assert machines.end() == 0, logged(folder)
    return folder


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0, 0.05, 0.2])
def test_a_training_that_is_killed_while_it_copies_continues_on_another_machine(
    machines, unbroken, remote, proxy, rate
):
    moments, name = random.Random(SEED), f"rate-{rate}"
    first, puts, number = machines.new(f"{name}-killed-in-a-copy", remote), [], moments.randrange(7, 10)
    proxy.rate = rate
    process = machines.start(first)

    def on_request(method, _path):
        if method in {"PUT", "POST"}:
            puts.append(method)
            if len(puts) == number:  # of the second copy, neither the first object nor the last
                kill(process)

    proxy.on_request = on_request
    code = machines.end()
    proxy.on_request = lambda method, path: None
    assert code == -signal.SIGKILL, logged(first)
    second = continues(machines, f"{name}-after-a-copy", remote)
    resumed = re.search(r"resumed from step (\d+), which was fetched from (\S+)", logged(second))
    # Where requests are sent again, the kill may come before the first copy is whole.
    assert resumed or rate, logged(second)
    assert not resumed or resumed[2].startswith(f"{remote}/")
    assert outcome(second) == unbroken, f"FAULT_SEED={SEED}"
    failed, asked = len(proxy.failed), len(proxy.asked)
    print(name, "resumed from", resumed and resumed[1], "failed", failed, "of", asked, "requests")
