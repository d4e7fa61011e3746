"""A training with several labels an image beside a plain Keras program: mAP and time of whole programs.

6,000 pictures of two or three of MNIST's digits, with ten labels; the same network, epochs, batches and
evaluations. Each round has a seed of its own, and both programs in turns. MNIST_FOLDER holds the four original
files; generated digits are easier.
"""

import csv
import gzip
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks import data, projects, results
from benchmarks.timing import PERENNIAL, ROOT, RUNS, Program, run, timed

SIZES = {"train": 4000, "validation": 500, "test": 1500}  # pictures
SIDE, INK = 40, slice(4, 24)  # pixels; where MNIST's digits are in theirs
BATCH, EPOCHS, BETWEEN = 50, 15, 5
TARGETS = {"points of mAP": 0.3, "time": 1.05}  # at most: the distance of the means, and ours over Keras'
VALUES = {
    "dataset.task": "multilabel",
    "dataset.table": {"path": "tags.csv", "file": "file", "label": "tags", "split": "split", "separator": "|"},
    "model.name": "mnist_cnn",
    "preprocessing.name": "rescale",
    "train.epochs": EPOCHS,
    "train.epochs_between_evals": BETWEEN,
    "train.batch_size": BATCH,
    "train.learning_rate": 0.001,
    "train.stop_threshold": None,
    "train.stop_metric": "map",
    "gate.min_accuracy": None,
    "validate.severity.near_duplicate": "ignore",
}
Pixels = NDArray[np.uint8]


def measure() -> None:
    """Measures, prints a table and writes the results."""
    measured: dict[str, list[dict[str, float]]] = {"perennial": [], "Keras program": []}
    with projects.scratch() as folder:
        pictures = folder / "pictures"
        _draw(data.mnist(), pictures)
        values = {**VALUES, "dataset.path": str(pictures)}
        project = projects.converted(folder / "project", "image_folder", pictures, values)
        run((*PERENNIAL, "validate"), project)
        for seed in range(RUNS):
            for name in list(measured)[:: -1 if seed % 2 else 1]:
                ours = name == "perennial"
                measured[name].append(_ours(project, seed) if ours else _keras(pictures, folder, seed))
    means = {name: statistics.mean(each["map"] for each in runs) for name, runs in measured.items()}
    ratios = {
        key: statistics.median(ours[key] / keras[key] for ours, keras in zip(*measured.values(), strict=True))
        for key in ("seconds", "processor_seconds")
    }
    _print(measured, means, ratios)
    results.write(
        "labels", measured=measured, mean_map=means, median_ratios=ratios, targets=TARGETS, sizes=SIZES,
        data=data.origins()["mnist"],
    )  # fmt: skip


def _ours(project: Path, seed: int) -> dict[str, float]:
    """Seconds of the stage `train`, start-up included, and the test mAP."""
    run((*PERENNIAL, "config", "--set", f"train.seed={seed}"), project)
    for command in (("pin", "weights"), ("initialize",)):
        run((*PERENNIAL, *command), project)
    found = _timed("perennial", (*PERENNIAL, "train", "--clean"), project, project / "models" / "weights")
    run((*PERENNIAL, "evaluate"), project)
    metrics = json.loads((project / "metrics" / "metrics.json").read_text(encoding="utf-8"))
    return {**found, "map": metrics["map_macro"]}


def _keras(pictures: Path, folder: Path, seed: int) -> dict[str, float]:
    """Seconds until the plain program has saved its model, and the test mAP."""
    program = (sys.executable, str(ROOT / "benchmarks" / "peers" / "keras_labels.py"))
    model = folder / "model.keras"
    numbers = (str(each) for each in (EPOCHS, BETWEEN, BATCH, seed))
    found = _timed("Keras program", (*program, "train", str(pictures), str(model), *numbers), folder, model)
    printed = run((*program, "score", str(pictures), str(model)), folder)
    return {**found, "map": float(printed.splitlines()[-1])}


def _timed(name: str, command: Sequence[str], folder: Path, output: Path) -> dict[str, float]:
    def verify(_printed: str) -> None:
        assert output.exists(), f"{output.name} is missing"

    seconds, used = timed(Program(name=name, command=command, folder=folder, outputs=[output], verify=verify))
    return {"seconds": seconds, "processor_seconds": used}


def _draw(originals: Path, folder: Path) -> None:
    """Writes pictures, each with two or three digits in its quarters, and the table of their labels."""
    random = np.random.default_rng(0)
    digits = {split: _digits(originals, split) for split in ("train", "t10k")}
    folder.mkdir()
    with (folder / "tags.csv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["file", "tags", "split"])
        for split, size in SIZES.items():
            images, labels = digits["t10k" if split == "test" else "train"]
            for number in range(data.scaled(size)):
                chosen = random.integers(len(labels), size=random.integers(2, 4))
                picture = np.zeros((SIDE, SIDE), np.uint8)
                for quarter, one in zip(random.permutation(4), chosen, strict=False):
                    top, left = (place * SIDE // 2 for place in divmod(int(quarter), 2))
                    picture[top : top + SIDE // 2, left : left + SIDE // 2] = images[one][INK, INK]
                Image.fromarray(picture).save(folder / f"{split}{number:04}.png")
                tags = "|".join(map(str, sorted({*labels[chosen].tolist()})))
                table.writerow([f"{split}{number:04}.png", tags, split])


def _digits(originals: Path, split: str) -> tuple[Pixels, Pixels]:
    """MNIST's images uint8 [n, 28, 28] and labels uint8 [n]."""
    images, labels = (
        np.frombuffer(
            gzip.decompress((originals / f"{split}-{name}-ubyte.gz").read_bytes()), np.uint8, offset=skipped
        )
        for name, skipped in (("images-idx3", 16), ("labels-idx1", 8))
    )
    return images.reshape(-1, 28, 28), labels


def _print(
    measured: dict[str, list[dict[str, Any]]], means: dict[str, float], ratios: dict[str, float]
) -> None:
    print(
        f"\n{'several labels, ' + str(RUNS) + ' rounds':<28}" + f"{'mean mAP':>10}{'median s':>10}{'CPU s':>10}"
    )
    for name, runs in measured.items():
        seconds, used = (
            statistics.median(each[key] for each in runs) for key in ("seconds", "processor_seconds")
        )
        print(f"  {name:<26}{means[name]:>10.4f}{seconds:>10.1f}{used:>10.1f}")
    distance = 100 * abs(means["perennial"] - means["Keras program"])
    print(
        f"  {distance:.2f} points apart (at most {TARGETS['points of mAP']}); ours over Keras': "
        f"{ratios['seconds']:.3f} of the time (at most {TARGETS['time']}), "
        f"{ratios['processor_seconds']:.3f} of processors"
    )
