"""What a network gains that has seen other classes: accuracy with few images, from its weights and from none.

CIFARNet learns five classes of CIFAR-10 from 1,000 images each, then the five others from 50 each, with several
rates of the lower layers, beside one that starts from random weights. CIFAR10_IMAGES names the images:
{train,test}/<class>/*.jpg.
"""

import json
import os
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import projects, results
from benchmarks.timing import PERENNIAL, run

CLASSES = {
    "first": ("airplane", "bird", "deer", "frog", "ship"),
    "then": ("automobile", "cat", "dog", "horse", "truck"),
}
PER_CLASS = {"first": 1000, "then": 50}  # training images
VALIDATION, TEST = 100, 400  # images of a class
SEEDS = 3
VALUES = {
    "model.name": "cifarnet",
    "preprocessing.name": "cifarnet",
    "train.optimizer": "adam",
    "train.batch_size": 64,
    "train.learning_rate": 0.001,
    "train.stop_threshold": None,
    "validate.severity.near_duplicate": "ignore",
}
EPOCHS = {"first": 8, "then": 40}
DECAYS = (1.0, 0.85, 0.75, 0.65)  # `train.layer_decay` of trainings that start from the weights of the first


def measure() -> None:
    """Measures, prints a table and writes the results."""
    named = os.environ.get("CIFAR10_IMAGES")
    if not named:
        print("transfer: skipped, since CIFAR10_IMAGES names no folder of CIFAR-10's images")
        return
    with projects.scratch() as folder:
        first = _project(folder, "first", Path(named))
        learned = _train(first, seed=0)
        shutil.copytree(first / "models" / "weights", folder / "start")
        then = _project(folder, "then", Path(named))
        found: dict[str, list[float]] = {name: [] for name in ("random weights", *map(str, DECAYS))}
        for seed in range(SEEDS):
            found["random weights"].append(_train(then, seed=seed))
            for decay in DECAYS:
                found[str(decay)].append(_train(then, seed=seed, start=folder / "start", decay=decay))
    print(f"first five classes: test accuracy {learned:.3f}")
    for name, accuracies in found.items():
        spread = f"{statistics.mean(accuracies):.3f} ± {statistics.stdev(accuracies):.3f}"
        print(f"other five, {name}: {spread}")
    results.write("transfer", first=learned, then=found, per_class=PER_CLASS, epochs=EPOCHS, seeds=SEEDS)


def _project(folder: Path, part: str, images: Path) -> Path:
    own = folder / f"{part}-images"
    for name in CLASSES[part]:
        train, test = (sorted((images / split / name).glob("*.jpg")) for split in ("train", "test"))
        own_train = train[VALIDATION:][: PER_CLASS[part]]
        taken = {"train": own_train, "validation": train[:VALIDATION], "test": test[:TEST]}
        for split, files in taken.items():
            _copy(files, own / split / name)
    epochs = EPOCHS[part]
    values = {**VALUES, "dataset.path": str(own), "train.epochs": epochs, "train.epochs_between_evals": epochs}
    project = projects.converted(folder / part, "image_folder", own, values)
    run((*PERENNIAL, "validate"), project)
    return project


def _copy(files: Sequence[Path], folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)


def _train(project: Path, *, seed: int, start: Path | None = None, decay: float | None = None) -> float:
    """Test accuracy of a training."""
    chosen: dict[str, Any] = {"train.seed": seed, "train.warm_start.path": start and str(start)}
    chosen["train.layer_decay"] = decay
    chosen["train.warm_start.exclude"] = json.dumps(["logits*"] if start else [])
    assign = [
        part
        for key, value in chosen.items()
        for part in ("--set", f"{key}={'null' if value is None else value}")
    ]
    run((*PERENNIAL, "config", *assign), project)
    for command in (("pin", "weights"), ("initialize",), ("train",), ("evaluate",)):
        run((*PERENNIAL, *command), project)
    metrics = json.loads((project / "metrics" / "metrics.json").read_text(encoding="utf-8"))
    return float(metrics["accuracy"])
