"""Train, evaluate, export and champion give equal bytes on a busy machine, whatever malloc leaves in memory.

Two runs here, RUNS of them with `make faults`. What may differ is the number of cores, which is recorded with a
run: it is the number of TensorFlow's threads, and without oneDNN it decides the order of sums.
"""

import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.parameters import change_params
from support.training import PLAIN

from perennial.base import files

ROOT = Path(__file__).parents[2]
THOROUGH = os.environ.get("FAULTS") == "all"
RUNS = int(os.environ.get("RUNS", "40" if THOROUGH else "2"))
SEED = int(os.environ.get("FAULT_SEED", "0"))
CORES = sorted(os.sched_getaffinity(0))
FOLDERS = ("models", "metrics")
VALUES = {**PLAIN, "model.dropout": 0.4, "train.max_steps": 40, "train.optimizer": "adam"}
BUSY = "while True: pass"
# Takes memory and gives it back, so that the kernel hands out pages that others have used.
GREEDY = "while True: memory = bytearray(300_000_000); memory[::4096] = bytes(len(memory[::4096]))"
# Forks for each stage, so that all runs share the import of TensorFlow: folder, cores, byte that fills memory.
SERVER = """
import ctypes, logging, os, sys
from pathlib import Path
from perennial.base import config
from perennial.model.inference import rescore
from perennial.model.export import parity
from perennial.stages.evaluate import evaluate
from perennial.stages.export import export
from perennial.stages.train import train

PERTURB = -6  # of mallopt(3): fills memory when it is taken and given back

def champion(chosen):
    rescore.main({"export": chosen.paths.export, "records": chosen.paths.records, "devices": "auto",
                     "split": "test", "to": chosen.paths.metrics.parent / "champion.npz"})

def run(stage, folder, cores, byte):
    os.sched_setaffinity(0, map(int, cores.split(",")))
    ctypes.CDLL(None).mallopt(PERTURB, int(byte))
    os.chdir(folder)
    parity.compare_apart = lambda job, call: parity.compare(job)  # in this process
    stage(config.load(Path("params.yaml")))

for line in sys.stdin:
    codes = []
    for stage in (train, evaluate, export, champion):
        if not (child := os.fork()):
            try:
                run(stage, *line.split())
            except BaseException:
                logging.exception("failed")
                os._exit(1)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(max(map(abs, codes)), flush=True)
"""


@contextlib.contextmanager
def busy(*programs: str) -> Iterator[None]:
    """Runs programs beside the block."""
    started = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


class Server:
    """A process that runs the stages in a folder, one call after the other."""

    def __init__(self, onednn: str) -> None:
        environment = {"PYTHONPATH": str(ROOT / "src"), "TF_ENABLE_ONEDNN_OPTS": onednn}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SERVER],
            env={**os.environ, **environment, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, folder: Path, cores: Sequence[int], byte: int) -> dict[str, str]:
        """Digests of the results of a run on some cores, by path; malloc fills memory with a byte."""
        print(folder, ",".join(map(str, cores)), byte, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline().strip() == "0", "a stage failed; its error is on stderr"
        results = itertools.chain.from_iterable(sorted((folder / name).rglob("*")) for name in FOLDERS)
        return {str(path.relative_to(folder)): files.sha256(path) for path in results if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("onednn", ["1", "0"], ids=["onednn", "eigen"])
def test_equal_runs_give_equal_bytes_on_a_busy_machine(digits: Path, tmp_path: Path, onednn: str) -> None:
    draw = random.Random(SEED)
    first: dict[int, dict[str, str]] = {}  # by number of cores
    counts: Counter[int] = Counter()
    with Server(onednn) as server:
        for number in range(RUNS):
            cores = draw.sample(CORES, draw.randint(1, len(CORES))) if THOROUGH else CORES
            folder = shutil.copytree(digits, tmp_path / f"run-{number}")
            shutil.copy(ROOT / "params.yaml", folder)
            change_params(folder / "params.yaml", VALUES)
            programs = [BUSY] * draw.randint(0, 4) + [GREEDY] * draw.randint(0, 2)
            with busy(*programs if number else ()):
                found = server.run(folder, cores, draw.randint(1, 255))
            expected, counts[len(cores)] = first.setdefault(len(cores), found), counts[len(cores)] + 1
            assert found == expected, f"run {number} of seed {SEED} on cores {cores}: {folder}"
            shutil.rmtree(folder)
    print("seed", SEED, "equal runs by number of cores:", dict(counts))
