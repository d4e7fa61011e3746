"""How often the gate promotes a model that is no better, and how often it finds one that is.

The first by real trainings of small tasks that differ in their seed alone: each model is compared with the one
before it, and with the champion, which is the last model that was promoted, as in a schedule. The second by
drawing the examples that only one of two models classifies correctly.

TRAININGS (default 200) sets the number of trainings of each task.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from benchmarks import data, results
from benchmarks.timing import ROOT

TRAININGS = int(os.environ.get("TRAININGS", "200"))
EXAMPLES = 10_000  # of the test split
GAIN = 0.01  # in accuracy
DIFFERENCES = (0.04, 0.06, 0.08, 0.10)  # share of the examples that only one of two models classifies correctly
TRIES = 1000
TASKS: dict[str, dict[str, dict[str, object]]] = {
    "digits": {},  # as in params.yaml
    # 10,000 test examples, and a training that ends before it has converged
    "unsettled": {
        "dataset": {"name": "mnist", "shards": 1},
        "train": {"epochs": 8, "epochs_between_evals": 8, "stop_threshold": None, "batch_size": 50},
    },
}
OPPONENTS = ("model before", "champion")
Figures = dict[str, Any]


def measure() -> None:
    """Measures, prints a table and writes the results."""
    power, same = gains(), {task: retrainings(task) for task in TASKS}
    for task, found in same.items():
        accuracies = found["accuracies"]
        spread = f"{np.mean(accuracies):.4f} ± {np.std(accuracies):.4f}"
        print(f"{task}: {len(accuracies)} trainings, test accuracy {spread}")
        for opponent in OPPONENTS:
            pairs, promoted = len(accuracies) - 1, found[opponent]["promoted"]
            print(f"against the {opponent}: {promoted} of {pairs} promoted ({100 * promoted / pairs:.1f} %)")
            for rule, count in found[opponent]["passed"].items():
                print(f"  {rule:<15} {100 * count / pairs:5.1f} % pass")
    print(f"a gain of {100 * GAIN:g} point on {EXAMPLES:,} examples")
    for difference, share in power.items():
        print(f"  found in {100 * share:5.1f} % of {TRIES} tries where {100 * difference:g} % differ")
    results.write("gate", retrainings=same, gains={str(key): value for key, value in power.items()})


def gains() -> dict[float, float]:
    """By share of examples that differ: how often a real gain of GAIN passes min_gain and significance."""
    from perennial.base.config.release import GateConfig  # noqa: PLC0415 - only the trainings need more
    from perennial.model.evaluation.comparison import mcnemar  # noqa: PLC0415

    limits, random = GateConfig(), np.random.default_rng(0)
    found = {}
    for difference in DIFFERENCES:
        shares = [(difference + GAIN) / 2, (difference - GAIN) / 2, 1 - difference]
        draws = random.multinomial(EXAMPLES, shares, TRIES)
        passed = [
            (won - lost) / EXAMPLES >= limits.min_gain and mcnemar(won, lost) <= (limits.significance or 1)
            for won, lost, _ in draws.tolist()
        ]
        found[difference] = float(np.mean(passed))
    return found


def retrainings(task: str) -> Figures:
    """Decisions of the default policy on models that differ in the seed of their training alone."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        write_parameters(TASKS[task])
        decisions = list(decide_each())
    return {
        "accuracies": [each["model before"]["candidate"]["accuracy"] for each in decisions],
        **{opponent: summary([each[opponent] for each in decisions[1:]]) for opponent in OPPONENTS},
    }


def summary(decisions: Sequence[Figures]) -> Figures:
    """How many were promoted, and how many kept each rule."""
    rules = [check["name"] for check in decisions[0]["checks"]]
    return {
        "promoted": sum(decision["promote"] for decision in decisions),
        "passed": {
            rule: sum(
                check["passed"] for each in decisions for check in each["checks"] if check["name"] == rule
            )
            for rule in rules
        },
        "gains": [decision["comparison"]["gain"] for decision in decisions],
        "p_values": [decision["comparison"]["p_value"] for decision in decisions],
    }


def write_parameters(changes: dict[str, dict[str, object]]) -> None:
    """Writes the project's parameters, with these and without a limit on accuracy, into this folder."""
    yaml = YAML()
    parameters = yaml.load(ROOT / "params.yaml")
    for section, values in {"gate": {"min_accuracy": 0.0}, **changes}.items():
        parameters[section].update(values)
    yaml.dump(parameters, Path("params.yaml"))


def decide_each() -> Iterator[dict[str, Figures]]:
    """The decisions on each training's model, by its opponent; the first training has none."""
    from perennial.base import config, documents  # noqa: PLC0415 - TensorFlow
    from perennial.model.evaluation import comparison, predictions  # noqa: PLC0415
    from perennial.model.evaluation.comparison import Champion  # noqa: PLC0415
    from perennial.stages.convert import convert  # noqa: PLC0415
    from perennial.stages.download import download  # noqa: PLC0415
    from perennial.stages.evaluate import evaluate  # noqa: PLC0415
    from perennial.stages.gate import gate  # noqa: PLC0415
    from perennial.stages.train import train  # noqa: PLC0415
    from perennial.stages.validate import validate  # noqa: PLC0415

    chosen = config.load(Path("params.yaml"))
    paths = chosen.paths
    if chosen.dataset.name == "mnist":
        shutil.copytree(data.mnist(2000, EXAMPLES, side=8), paths.raw)
    else:
        download(chosen)
    paths.export.mkdir(parents=True)  # the limits are on accuracy
    convert(chosen)
    validate(chosen)
    opponents: dict[str, Champion] = {}
    for seed in range(TRAININGS):
        train(chosen.model_copy(update={"train": chosen.train.model_copy(update={"seed": seed})}))
        evaluate(chosen)
        scored = predictions.read(paths.predictions).judged()
        candidate = Champion.of(scored, commit=str(seed), version=f"v0.0.{seed}")
        decisions = {}
        for name in OPPONENTS:
            if name in opponents:
                opponents[name].write(paths.champion)
            else:
                comparison.write_none(paths.champion)
            gate(chosen)
            decisions[name] = documents.read_json(paths.decision)
            if name == "model before" or decisions[name]["promote"]:
                opponents[name] = candidate
        verdicts = ", ".join(
            f"{'better' if each['promote'] else 'no better'} than the {name}"
            for name, each in decisions.items()
        )
        print(
            f"seed {seed}: test accuracy {decisions['champion']['candidate']['accuracy']:.4f}, {verdicts}",
            flush=True,
        )
        yield decisions
        shutil.rmtree(paths.work / "train")
