"""How fast the head of a frozen network trains, beside Keras in two ways, and with which weights.

Both ways are those of Keras' transfer-learning guide: `fit` with a frozen base, which runs the base in each
epoch, and the base's outputs recorded once, with `fit` of the head on them. The latter does the same work as
ours. All start from decoded images; Keras' are resized already. Our time is that of the whole loop: the
features of all images with their resizing, compiling, steps, the last evaluation and the checkpoint. The ratio
with decoding counts it on both sides. One more round has whole steps, whose weights are compared.
"""

import itertools
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import data, projects, results
from benchmarks.timing import PERENNIAL, ROOT, RUNS, run

TARGETS = {"Keras fit": 10, "Keras, recorded": 1}  # the peer's seconds over ours, at least
WORKFLOWS = {"Keras fit": "frozen", "Keras, recorded": "recorded"}  # of keras_head.py
EPOCHS = 20
OURS = (sys.executable, "-m", "benchmarks.training", "head")
PEER = str(ROOT / "benchmarks" / "peers" / "keras_head.py")
SPLITS = ("train", "validation", "test")


class Case(NamedTuple):
    """Images of so many classes, and the side that the network sees."""

    classes: int
    per_class: int
    size: int


CASES = {"120 photographs": Case(5, 24, 224), "20 classes x 200": Case(20, 200, 96)}


def measure() -> None:
    """Measures every case and writes the results."""
    measured = {}
    with projects.scratch() as folder:
        for number, (name, case) in enumerate(CASES.items()):
            measured[name] = _compare(name, case, folder / str(number))
    results.write("head", cases=measured, epochs=EPOCHS, targets=TARGETS, data=data.origins())


def _compare(name: str, case: Case, folder: Path) -> dict[str, Any]:
    images = _written(folder / "images", case)
    project = projects.converted(folder / "project", "image_folder", images, _values(images, case))
    run((*PERENNIAL, "validate"), project)
    given = str(images / "train"), str(case.size), str(EPOCHS)
    peers = {name: (sys.executable, PEER, workflow, *given) for name, workflow in WORKFLOWS.items()}
    measured = _rounds({"perennial": (*OURS, "features"), **peers}, project)
    whole = json.loads(run((*OURS, "whole"), project).splitlines()[-1])
    result = {
        "measured": measured,
        "whole_steps": whole,
        "images_per_second": {
            program: statistics.median(each["images"] / each["seconds"] for each in runs)
            for program, runs in measured.items()
        },
        "ratios": {peer: _ratios(measured[peer], measured["perennial"]) for peer in peers},
        "difference": _difference(project),
    }
    _print(f"{name}, {case.size} px", result)
    return result


def _rounds(programs: Mapping[str, Sequence[str]], project: Path) -> dict[str, list[dict[str, float]]]:
    """What each program printed in each round; every other round goes backwards."""
    measured: dict[str, list[dict[str, float]]] = {program: [] for program in programs}
    for number in range(RUNS):
        for program in list(programs)[:: -1 if number % 2 else 1]:
            measured[program].append(json.loads(run(programs[program], project).splitlines()[-1]))
    return measured


def _ratios(theirs: Sequence[Mapping[str, float]], ours: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Medians over the rounds of a peer's time over ours."""
    parts = {
        "seconds": ("seconds",),
        "with_decoding": ("seconds", "decoding_s"),
        "processor": ("processor_s",),
    }
    return {
        what: statistics.median(
            sum(peer[key] for key in keys) / sum(own[key] for key in keys)
            for peer, own in zip(theirs, ours, strict=True)
        )
        for what, keys in parts.items()
    }


def _print(title: str, result: Mapping[str, Any]) -> None:
    columns = ("images/s", "seconds", "ratio", "target", "with decoding", "CPU ratio")
    print(f"\nhead of mobilenet_v2, {title}, {EPOCHS} epochs")
    print(f"{'':<18}" + "".join(f"{column:>15}" for column in columns))
    for program, rate in result["images_per_second"].items():
        seconds = statistics.median(each["seconds"] for each in result["measured"][program])
        line = f"  {program:<16}{rate:>15,.0f}{seconds:>15.1f}"
        if found := result["ratios"].get(program):
            line += f"{found['seconds']:>15.2f}{TARGETS[program]:>15}"
            line += f"{found['with_decoding']:>15.2f}{found['processor']:>15.2f}"
        print(line)
    whole, difference = result["whole_steps"]["seconds"], result["difference"]
    print(f"  whole steps {whole:.0f} s, largest difference of a weight {difference:.1e}", flush=True)


def _values(images: Path, case: Case) -> dict[str, Any]:
    return {
        "dataset.path": str(images),
        "preprocessing.name": "rescale",  # distorts nothing
        "preprocessing.image_size": case.size,
        "model.name": "mobilenet_v2",
        "train.trainable": ["logits"],
        "train.epochs": EPOCHS,
        "train.epochs_between_evals": EPOCHS,
        "train.batch_size": 32,
        "train.stop_threshold": None,
        "validate.severity.near_duplicate": "ignore",
    }


def _written(folder: Path, case: Case) -> Path:
    """Folders of a class each: all images for training, and one of each class to evaluate."""
    per_class = min(data.scaled(case.per_class), case.per_class)
    photographs = data.photographs(case.classes, per_class)
    for number in range(case.classes):
        bodies = list(itertools.islice(photographs, per_class))
        for split in SPLITS:
            into = folder / split / f"class_{number:02}"
            into.mkdir(parents=True)
            for index, body in enumerate(bodies if split == "train" else bodies[:1]):
                (into / f"{split}-{index:04}.jpg").write_bytes(body)
    return folder


def _difference(project: Path) -> float:
    """The largest difference of a weight between the two trainings."""
    with np.load(project / "features.npz") as features, np.load(project / "whole.npz") as whole:
        assert features.files == whole.files
        return max(float(np.abs(features[name] - whole[name]).max()) for name in whole.files)
