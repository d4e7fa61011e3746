"""What a nightly retraining breaks: negative flips with and without the champion's weights and answers.

A network learns some images, and its successor 10 % more, in several ways. Both answer the same test images: a
negative flip is one that only the first gets right. Of the UCI digits and of CIFAR-10 as JPEG files
(CIFAR10_IMAGES), with SEEDS draws of images and weights (default 5). The time is that of the stage train, start
and the teacher's answers included.
"""

import io
import os
import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from scipy import stats
from sklearn.datasets import load_digits

from benchmarks import projects, results
from benchmarks.timing import PERENNIAL, Program, run, timed
from perennial.base import config, files
from perennial.base.project.pins import PinnedTeacher, WeightsPin
from perennial.data.sources import weights
from perennial.model.evaluation import predictions

SEEDS = int(os.environ.get("SEEDS", "5"))
RATE, EPOCHS = 0.001, 20
SIZES = {"digits": (800, 880, 897), "CIFAR-10": (3000, 3300, 4000)}  # to learn first, then, and to test on
WEIGHTS = {"train.warm_start.path": "../first/models/weights"}
TEACHER = {"train.teacher": "champion"}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "new weights": {},
    "new weights, teacher": TEACHER,
    "its weights": WEIGHTS,
    "its weights, a third of the rate": {**WEIGHTS, "train.learning_rate": RATE / 3},
    "its weights, a tenth of the rate": {**WEIGHTS, "train.learning_rate": RATE / 10},
    "its weights, teacher": {**WEIGHTS, **TEACHER},
    "its weights, teacher, focus 5": {**WEIGHTS, **TEACHER, "train.teacher_focus": 5.0},
    "its weights, teacher, a third of the rate": {**WEIGHTS, **TEACHER, "train.learning_rate": RATE / 3},
}
JPEG = b"\xff\xd8"  # the first bytes of a file
BESIDE = "its weights"  # what all are compared with
VALUES = {
    "dataset.name": "image_folder", "dataset.path": "images", "model.name": "mnist_cnn",
    "preprocessing.name": "rescale", "train.epochs": EPOCHS, "train.epochs_between_evals": 10,
    "train.learning_rate": RATE, "train.stop_threshold": None, "gate.min_accuracy": None,
    "export.reference_examples": 0, "validate.severity.near_duplicate": "ignore",
    "validate.severity.duplicate_across_splits": "warn", "validate.severity.label_conflict": "warn",
    "validate.severity.class_imbalance": "ignore",
}  # fmt: skip
Images = list[tuple[str, bytes]]  # class and file
Right = NDArray[np.bool_]  # of each test image


def measure() -> None:
    """Trains, compares, prints a table and writes the results."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in SIZES if "CIFAR10_IMAGES" in os.environ else ("digits",):
        measured = [_night(name, seed) for seed in range(SEEDS)]
        rows[name] = [
            {"way": way, **_compared([(night[way], night[BESIDE]) for night in measured])} for way in WAYS
        ]
        print(f"\n{name}, {SEEDS} draws{'':<26}accuracy  negative flips  beside {BESIDE}   of its time")
        for found in rows[name]:
            print(
                f"  {found['way']:<42}{found['accuracy']['mean']:>8.1%}{found['flips']['mean']:>10.2%}"
                f"{found['accuracy']['difference']:>+10.2%} ± {found['accuracy']['interval']:.2%}"
                f"{found['flips']['difference']:>+9.2%} ± {found['flips']['interval']:.2%}{found['time']:>8.2f}"
            )
    results.write("negative_flips", rows=rows, seeds=SEEDS, sizes=SIZES, epochs=EPOCHS, beside=BESIDE)


def _compared(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, Any]:
    """Means, and differences from the other way with half of their 95 % interval (t)."""
    found: dict[str, Any] = {}
    for key in ("accuracy", "flips"):
        own = [mine[key] for mine, _ in pairs]
        apart = [mine[key] - others[key] for mine, others in pairs]
        error = statistics.stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
        half = float(stats.t.ppf(0.975, len(apart) - 1)) * error if len(apart) > 1 else 0.0
        found[key] = {"mean": statistics.mean(own), "difference": statistics.mean(apart), "interval": half}
    return {**found, "time": statistics.median(mine["seconds"] / others["seconds"] for mine, others in pairs)}


def _night(name: str, seed: int) -> dict[str, dict[str, float]]:
    """Accuracy, negative flips and seconds of each way, for one draw."""
    train, test = (_cifar10 if name == "CIFAR-10" else _digits)(seed)
    first, then, _ = SIZES[name]
    with projects.scratch() as folder:
        old = _converted(folder / "first", train[:first], test, seed)
        _trained(old, {}, None)
        run((*PERENNIAL, "export"), old)
        before, new = _right(old), _converted(folder / "then", train[:then], test, seed)
        found = {}
        for way, values in WAYS.items():
            seconds = _trained(new, values, old / "models" / "export")
            right = _right(new)
            flips = float((before & ~right).mean())
            found[way] = {"accuracy": float(right.mean()), "flips": flips, "seconds": seconds}
        print(f"{name}, draw {seed}: {before.mean():.1%}", found, flush=True)
        return found


def _converted(folder: Path, train: Images, test: Images, seed: int) -> Path:
    for split, images in (("train", train), ("test", test)):
        for number, (of, content) in enumerate(images):
            kind = "jpg" if content[:2] == JPEG else "png"
            files.write_bytes(folder / "images" / split / of / f"{number:05}.{kind}", content)
    shutil.move(folder / "images", folder.with_name(f"{folder.name}-images"))
    folder.rmdir()
    path = str(folder.with_name(f"{folder.name}-images"))
    projects.converted(folder, "image_folder", Path(path), {**VALUES, "dataset.path": path, "train.seed": seed})
    run((*PERENNIAL, "validate"), folder)
    return folder


def _trained(project: Path, values: Mapping[str, Any], export: Path | None) -> float:
    """Seconds of a training with these parameters; `export`: of the teacher, if they ask for one."""
    defaults = {"train.learning_rate": RATE, "train.warm_start.path": None, "train.teacher": None}
    chosen = {**defaults, "train.teacher_focus": 0.0, **values}
    pairs = [f"--set={key}={'null' if value is None else value}" for key, value in chosen.items()]
    run((*PERENNIAL, "config", *pairs), project)
    taught = chosen["train.teacher"] and PinnedTeacher(path="champion", version="v0.0.1", commit="0" * 40)
    before = Path.cwd()
    os.chdir(project)
    try:
        loaded = config.load(Path("params.yaml"))
        weights.pin(loaded, taught)
        shutil.rmtree(loaded.paths.initial_weights, ignore_errors=True)
        loaded.paths.initial_weights.mkdir(parents=True)
        weights.copy(loaded, loaded.paths.initial_weights, None)
        if taught and export:
            shutil.copytree(export, loaded.paths.initial_weights / weights.TEACHER)
        assert WeightsPin.read().teacher == (taught or None)
    finally:
        os.chdir(before)
    made = project / "models" / "weights"

    def verify(_printed: str) -> None:
        assert made.exists(), "no model"

    program = Program(
        name="train", command=(*PERENNIAL, "train", "--clean"), folder=project, outputs=[made], verify=verify
    )
    seconds, _ = timed(program)
    run((*PERENNIAL, "evaluate"), project)
    return seconds


def _right(project: Path) -> Right:
    found = predictions.read(project / "metrics" / "predictions.npz")
    right: Right = found.probabilities.argmax(axis=1) == found.labels
    return right


def _digits(seed: int) -> tuple[Images, Images]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    every = [(str(labels[row]), _png(images[row].reshape(8, 8) * 15)) for row in order]
    _, train, test = SIZES["digits"]
    return every[:train], every[train : train + test]


def _png(pixels: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(pixels.astype(np.uint8)).save(file, "png")
    return file.getvalue()


def _cifar10(seed: int) -> tuple[Images, Images]:
    random, (_, train, test) = np.random.default_rng(seed), SIZES["CIFAR-10"]
    found = []
    for split, count in (("train", train), ("test", test)):
        every = sorted(Path(os.environ["CIFAR10_IMAGES"], split).glob("*/*.jpg"))
        chosen = random.permutation(len(every))[:count]
        found.append([(every[row].parent.name, every[row].read_bytes()) for row in chosen])
    return found[0], found[1]
