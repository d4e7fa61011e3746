"""How fast the preset fast_cifar10 learns: its accuracy after 256,000 images, and its time to 80 %.

CIFAR10_IMAGES names the images: {train,test}/<class>/*.jpg. A tenth of those to train on is the validation
split, by which times are taken; the accuracy after all images is on the test split. The results `fast` are
written after each of SEEDS trainings; 0 leaves them as they are. The time to 80 %, in the results `race`, is
that of the loop, with its evaluations, beside that of the preset cifar10_tutorial, each in a process of its
own, one after the other. The recipe of the race is the preset's with fewer steps, smaller images first, and
bfloat16, which needs a processor with AVX512_BF16 or AMX to be fast.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks import projects, results
from benchmarks.timing import PERENNIAL, processor_seconds, run

SEEDS = int(os.environ.get("SEEDS", "5"))
MINUTES = float(os.environ.get("TUTORIAL_MINUTES", "60"))  # of the tutorial's network at most
REACHED = 0.8  # validation accuracy that is timed
SHORT: dict[str, Any] = {  # enough for that
    "train.max_steps": 600,
    "train.schedule.warmup_steps": 72,
    "train.precision": "bfloat16",
}
ALL = {"train.steps_between_evals": 250}
RACES: dict[str, dict[str, Any]] = {
    "fast_cifar10": {**SHORT, "train.steps_between_evals": 200},
    "cifar10_tutorial": {"train.steps_between_evals": 352},
}


def measure() -> None:
    """Measures, prints a table and writes the results."""
    named = os.environ.get("CIFAR10_IMAGES")
    if not named:
        print("fast: skipped, since CIFAR10_IMAGES names no folder of CIFAR-10's images")
        return
    with projects.scratch() as folder:
        project = _project(folder / "fast_cifar10", Path(named), "fast_cifar10", ALL)
        runs: list[dict[str, Any]] = []
        races: dict[str, dict[str, Any]] = {}
        for seed in range(SEEDS):
            runs.append(train(project, seed))
            results.write("fast", trainings=runs)
        for preset, values in RACES.items():
            racing = _project(folder / f"race-{preset}", Path(named), preset, values)
            races[preset] = _race(racing)
    results.write("race", races=races, reached=REACHED, tutorial_minutes=MINUTES)
    _print(runs, races)


def _project(folder: Path, images: Path, preset: str, values: dict[str, Any]) -> Path:
    """A project with a preset, its records validated."""
    own = {
        "dataset.name": "image_folder",
        "dataset.path": str(images),
        "validate.severity.near_duplicate": "ignore",
        "validate.severity.duplicate_across_splits": "warn",
        "checkpoints.interval_s": 600,
    }
    project = projects.converted(folder, "image_folder", images, {**projects.preset(preset), **own, **values})
    run((*PERENNIAL, "validate"), project)
    return project


def train(project: Path, seed: int) -> dict[str, Any]:
    """Test accuracy, images, curve and time of a training; the time is that of the stage, start-up included."""
    run((*PERENNIAL, "config", "--set", f"train.seed={seed}"), project)
    for command in (("pin", "weights"), ("initialize",)):
        run((*PERENNIAL, *command), project)
    started, used = time.monotonic(), processor_seconds()
    run((*PERENNIAL, "train", "--clean"), project)
    seconds, used = time.monotonic() - started, processor_seconds() - used
    run((*PERENNIAL, "evaluate"), project)
    trained = json.loads((project / "metrics" / "training.json").read_text(encoding="utf-8"))
    metrics = json.loads((project / "metrics" / "metrics.json").read_text(encoding="utf-8"))
    size = YAML(typ="safe").load(project / "params.yaml")["train"]["batch_size"]
    found = {
        "seed": seed,
        "images": trained["step"] * size,
        "test_accuracy": metrics["accuracy"],
        "seconds": seconds,
        "processor_seconds": used,
        "validation": [(each["step"] * size, each["accuracy"]) for each in trained["evaluations"]],
    }
    print(
        f"seed {seed}, {found['images']} images, test accuracy {found['test_accuracy']:.4f}, "
        f"{seconds:.0f} s, {used:.0f} s of processors",
        flush=True,
    )
    return found


def _race(project: Path) -> dict[str, Any]:
    """Seconds, images and accuracy of each evaluation, until the accuracy is reached or time is up."""
    run((*PERENNIAL, "pin", "weights"), project)
    run((*PERENNIAL, "initialize"), project)
    command = (sys.executable, "-m", "benchmarks.training", "until", str(REACHED), str(60 * MINUTES))
    found: dict[str, Any] = json.loads(run(command, project).splitlines()[-1])
    return found


def _print(runs: list[dict[str, Any]], races: dict[str, dict[str, Any]]) -> None:
    if runs:
        scores = [each["test_accuracy"] for each in runs]
        spread = f" ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
        print(f"\ntest accuracy after {runs[0]['images']} images, {len(runs)} seeds: "
              f"{statistics.mean(scores):.4f}{spread}")  # fmt: skip
    for preset, race in races.items():
        seconds, used, images, accuracy = race["evaluations"][-1]
        what = "reached" if accuracy >= REACHED else f"not reached, {accuracy:.1%}"
        print(
            f"  {preset:<18}{REACHED:.0%} {what} after {seconds:.0f} s, {used:.0f} s of processors and "
            f"{images} images"
        )
    fast, tutorial = (races[preset]["evaluations"][-1] for preset in RACES)
    least = "" if tutorial[3] >= REACHED else "at least "
    print(f"  the tutorial's network takes {least}{tutorial[0] / fast[0]:.1f} times as long, "
          f"{tutorial[1] / fast[1]:.1f} times the processor time")  # fmt: skip
