"""How fast batches are delivered, with nothing else to do, beside how fast models take them.

Images of one size are delivered as they are stored, and the training step distorts them: their distortions are
part of the model's time, and delivering them from memory is little more than gathering. Delivery, model (both
benchmarks/rates.py) and a plain tf.data pipeline (benchmarks/peers/tfdata_small.py) alternate, each a process.
Photographs, which are distorted before delivery, are measured by benchmarks/photographs.py.
"""

import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import data, peers, photographs, projects, results
from benchmarks.timing import RUNS, run

SECONDS = 1.0  # of each measurement, after the first batches
TARGET = 10  # images delivered for each that the model takes
CACHES = ("memory", "none")
PEER = "tf.data"


class Case(NamedTuple):
    """Data that a model trains on."""

    dataset: str
    originals: Callable[[], Path]
    preprocessing: str
    image_size: int | None
    batch_size: int


CASES = {
    "mnist_cnn": Case("mnist", data.mnist, "rescale", None, 64),
    "cifar10_tutorial": Case("cifar10", data.cifar10, "cifar10_tutorial", 24, 128),
}


def measure() -> None:
    """Measures every case and writes the results."""
    measured = {}
    with projects.scratch() as folder:
        for model, case in CASES.items():
            project = projects.converted(folder / model, case.dataset, case.originals())
            measured[model] = _rounds(model, case, project)
            _print(model, measured[model])
        on_photographs = photographs.measure(folder / "photographs")
    found = {"cases": measured, "photographs": on_photographs}
    results.write("input", **found, seconds=SECONDS, target=TARGET, data=data.origins())


def _rounds(model: str, case: Case, project: Path) -> dict[str, Any]:
    """Images a second of each round, and what follows from them."""
    measured: dict[str, list[dict[str, float]]] = {}
    for number in range(RUNS):
        ours = (sys.executable, "-m", "benchmarks.rates")
        commands = (
            (*ours, "consume", model),
            (*ours, "deliver", model, *CACHES),
            peers.command("tfdata_small", projects.records(project), SECONDS, case.batch_size),
        )
        for command in commands[:: -1 if number % 2 else 1]:
            os.sync()
            for what, found in json.loads(run(command, project).splitlines()[-1]).items():
                measured.setdefault(what, []).append(found)
    rates = {what: statistics.median(each["rate"] for each in runs) for what, runs in measured.items()}
    return {
        "measured": measured,
        "images_per_second": rates,
        "over_peer": {
            what: statistics.median(
                own["rate"] / theirs["rate"] for own, theirs in zip(measured[what], measured[PEER], strict=True)
            )
            for what in CACHES
        },
        "median_ratios": {
            what: statistics.median(
                theirs["rate"] / taken["rate"] for theirs, taken in zip(runs, measured["model"], strict=True)
            )
            for what, runs in measured.items()
            if what != "model"
        },
    }


def _print(model: str, found: dict[str, Any]) -> None:
    print(f"\ninput of {model}\n{'':<10}{'images/s':>12}{'CPU s/1000':>12}{'first s':>9}", end="")
    print(f"{'ratio':>8}{'target':>8}{'to peer':>9}")
    for what, rate in found["images_per_second"].items():
        runs = found["measured"][what]
        used = statistics.median(each["processor_seconds"] for each in runs) * 1000
        first = statistics.median(each["first_s"] for each in runs)
        ratio = found["median_ratios"].get(what)
        columns = f"{rate:>12,.0f}{used:>12.3f}{first:>9.2f}"
        if ratio:
            columns += f"{ratio:>8.1f}{TARGET:>8}"
        if peer := found["over_peer"].get(what):
            columns += f"{peer:>9.2f}"
        print(f"  {what:<8}{columns}", flush=True)
