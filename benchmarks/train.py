"""How fast a training is, beside Keras' `fit` of the same network on the same data, all in memory.

Each measurement is a process of its own, in turns; the first steps are left out. Where there is a GPU, the
speed on it comes from benchmarks/gpu.py.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import data, projects, results
from benchmarks.timing import PERENNIAL, ROOT, RUNS, SLOW_RUNS, run
from benchmarks.training import SECONDS

TARGET = 1.2  # our speed over that of Keras' fit as it comes
OURS = {"perennial": ("true",), "perennial, not deterministic": ("false",)}
KERAS = {"Keras fit": ("auto", 1), "Keras fit, 20 steps a call": ("auto", 20), "Keras fit, XLA": ("true", 1)}
OFTEN = ("perennial", "Keras fit")  # the others have SLOW_RUNS rounds
MATMUL = ("Conv2D", "MatMul")  # begin or end the kinds of operations that are matrix products at heart


class Case(NamedTuple):
    """A preset and its data."""

    preset: str
    dataset: str
    originals: Callable[[], Path]
    batch_size: int


CASES = {
    "mnist_cnn": Case("mnist", "mnist", data.mnist, 100),
    "cifar10_tutorial": Case("cifar10_tutorial", "cifar10", data.cifar10, 128),
}


def measure() -> None:
    """Measures every case and writes the results."""
    measured = {}
    with projects.scratch() as folder:
        for model, case in CASES.items():
            project = projects.converted(folder / model, case.dataset, case.originals(), _values(case))
            run((*PERENNIAL, "validate"), project)
            measured[model] = _compare(model, case, project)
            measured[model]["profile"] = _profile(project)
    results.write("train", cases=measured, seconds=SECONDS, target=TARGET, data=data.origins())


def _values(case: Case) -> dict[str, Any]:
    """What the preset says of model and training, with no evaluation while it is measured."""
    sections = ("preprocessing.", "model.", "train.")
    values = {key: value for key, value in projects.preset(case.preset).items() if key.startswith(sections)}
    endless = {"train.epochs": None, "train.max_steps": 10**7, "train.epochs_between_evals": 10**4}
    return {**values, **endless, "checkpoints.interval_s": 60, "validate.severity.near_duplicate": "ignore"}


def _compare(model: str, case: Case, project: Path) -> dict[str, Any]:
    """Every process of each round, and what follows from them."""
    ours = {name: (sys.executable, "-m", "benchmarks.training", "speed", *how) for name, how in OURS.items()}
    program = str(ROOT / "benchmarks" / "peers" / "keras_fit.py")
    fit = (sys.executable, program, model, str(case.originals()), str(SECONDS))
    keras = {name: (*fit, *map(str, how)) for name, how in KERAS.items()}
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in (*ours, *keras)}
    for number in range(RUNS):
        for name, command in list({**ours, **keras}.items())[:: -1 if number % 2 else 1]:
            if number >= SLOW_RUNS and name not in OFTEN:
                continue
            os.sync()
            started = time.time()
            found = json.loads(run(command, project).splitlines()[-1])
            measured[name].append({**found, "first_step_s": found["first_step_at"] - started})
    weights = {each["weights"] for runs in measured.values() for each in runs}
    assert len(weights) == 1, f"the networks are not the same: {weights}"
    result = {
        "measured": measured,
        "examples_per_second": {
            name: case.batch_size / _median(runs, "seconds_per_step") for name, runs in measured.items()
        },
        "median_ratios": {
            name: {peer: _ratio(measured[peer], measured[name], "seconds_per_step") for peer in keras}
            for name in ours
        },
        "median_processor_ratios": {
            name: {peer: _ratio(measured[peer], measured[name], "processor_s_per_step") for peer in keras}
            for name in ours
        },
    }
    _print(model, case, result)
    return result


def _ratio(theirs: list[dict[str, Any]], ours: list[dict[str, Any]], key: str) -> float:
    """Theirs over ours, the median of the rounds."""
    return statistics.median(peer[key] / own[key] for peer, own in zip(theirs, ours, strict=False))


def _print(model: str, case: Case, result: dict[str, Any]) -> None:
    """Keras' seconds and processor seconds a step over ours, deterministic and not (n.d.)."""
    columns = ("examples/s", "CPU ms/step", "first step", "ratio", "of CPU", "n.d. ratio", "of CPU", "target")
    print(f"\ntraining {model}, batches of {case.batch_size}\n{'':<30}" + "".join(f"{c:>12}" for c in columns))
    for name, runs in result["measured"].items():
        used, first = (_median(runs, key) for key in ("processor_s_per_step", "first_step_s"))
        line = f"  {name:<28}{result['examples_per_second'][name]:>12,.0f}{used * 1000:>12.1f}{first:>10.1f} s"
        if name in KERAS:
            kinds = ("median_ratios", "median_processor_ratios")
            line += "".join(f"{result[kind][own][name]:>12.2f}" for own in OURS for kind in kinds)
        print(line + (f"{TARGET:>12}" if name == "Keras fit" else ""))
    runs = result["measured"]["perennial"]
    wait, share, held, whole, compiled = (
        _median(runs, key)
        for key in ("input_wait", "loop_share", "checkpoint_holds_s", "checkpoint_s", "first_update_s")
    )
    print(
        f"  waiting for input {wait:.1%}, in the loop outside of updates {share:.1%}; a checkpoint takes "
        f"{whole:.2f} s and holds the loop for {held:.2f} s, {held / 60:.2%} of a minute\n"
        f"  before the first step: {runs[-1]['parts']}; first update with compiling {compiled:.1f} s",
        flush=True,
    )


def _median(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.median(each[key] for each in runs)


def _profile(project: Path) -> dict[str, Any]:
    """Where an update's time goes on one thread, and how much of it is matrix products."""
    printed = run((sys.executable, "-m", "benchmarks.training", "profile"), project)
    kinds: dict[str, float] = json.loads(printed.splitlines()[-1])
    whole = sum(kinds.values())
    share = sum(spent for kind, spent in kinds.items() if any(part in kind for part in MATMUL)) / whole
    print(f"  one thread: {whole:.1f} ms an update, {share:.0%} in matrix products and convolutions")
    for kind, spent in list(kinds.items())[:12]:
        print(f"    {kind:<40}{spent:>8.2f} ms{spent / whole:>7.1%}", flush=True)
    return {"milliseconds": kinds, "matmul_share": share}
