"""How fast the head of a frozen network trains, beside Keras' `fit` with a frozen base, and with which weights.

Both start from decoded images; Keras' are resized already. Our time is that of the whole loop: the features of
all images with their resizing, compiling, steps, the last evaluation and the checkpoint. The ratio
with decoding counts it on both sides. One more round has whole steps, whose weights are compared.
"""

import itertools
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import data, projects, results
from benchmarks.timing import PERENNIAL, ROOT, RUNS, run

TARGET = 10  # our images a second over those of Keras' fit
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
    results.write("head", cases=measured, epochs=EPOCHS, target=TARGET, data=data.origins())


def _compare(name: str, case: Case, folder: Path) -> dict[str, Any]:
    images = _written(folder / "images", case)
    project = projects.converted(folder / "project", "image_folder", images, _values(images, case))
    run((*PERENNIAL, "validate"), project)
    programs = {
        "perennial": (*OURS, "features"),
        "Keras fit": (sys.executable, PEER, str(images / "train"), str(case.size), str(EPOCHS)),
    }
    measured = defaultdict(list)
    for number in range(RUNS):
        for program in list(programs)[:: -1 if number % 2 else 1]:
            measured[program].append(json.loads(run(programs[program], project).splitlines()[-1]))
    whole = json.loads(run((*OURS, "whole"), project).splitlines()[-1])
    rates = {
        program: statistics.median(each["images"] / each["seconds"] for each in runs)
        for program, runs in measured.items()
    }
    pairs = list(zip(measured["Keras fit"], measured["perennial"], strict=True))
    result = {
        "measured": dict(measured),
        "whole_steps": whole,
        "images_per_second": rates,
        "ratio": statistics.median(theirs["seconds"] / ours["seconds"] for theirs, ours in pairs),
        "ratio_with_decoding": statistics.median(
            (theirs["seconds"] + theirs["decoding_s"]) / (ours["seconds"] + ours["decoding_s"])
            for theirs, ours in pairs
        ),
        "processor_ratio": statistics.median(
            theirs["processor_s"] / ours["processor_s"] for theirs, ours in pairs
        ),
        "difference": _difference(project),
    }
    print(f"\nhead of mobilenet_v2, {name}, {case.size} px, {EPOCHS} epochs")
    for program, rate in rates.items():
        seconds = statistics.median(each["seconds"] for each in measured[program])
        print(f"  {program:<14}{rate:>10,.0f} images/s{seconds:>9.1f} s")
    print(
        f"  ratio {result['ratio']:.1f} (target {TARGET}), of CPU time {result['processor_ratio']:.1f}, "
        f"with decoding {result['ratio_with_decoding']:.1f}; "
        f"whole steps {whole['seconds']:.0f} s, largest difference of a weight {result['difference']:.1e}",
        flush=True,
    )
    return result


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
    photographs = data.photographs(case.classes, case.per_class)
    for number in range(case.classes):
        bodies = list(itertools.islice(photographs, case.per_class))
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
