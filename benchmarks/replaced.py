"""How the preset mnist does, which replaces TensorFlow's official MNIST program: test accuracy and time.

MNIST_FOLDER holds the four original files: generated digits would say nothing. The results are written after
each of SEEDS trainings, and those of the same commit are not made again. The preset fast_cifar10, which
replaces the CIFAR-10 tutorial, is the subject `fast`.
"""

import json
import os
from typing import Any

from benchmarks import data, projects, results
from benchmarks.fast import SEEDS, train
from benchmarks.timing import PERENNIAL, ROOT, run


def measure() -> None:
    """Trains the preset with each seed; writes the results."""
    if "MNIST_FOLDER" not in os.environ:
        print("replaced: skipped, since MNIST_FOLDER names no folder of MNIST's files")
        return
    trainings = _made()
    with projects.scratch() as folder:
        project = projects.converted(folder / "mnist", "mnist", data.mnist(), projects.preset("mnist"))
        run((*PERENNIAL, "validate"), project)
        for seed in range(len(trainings), SEEDS):
            trainings.append(train(project, seed))
            results.write("replaced", trainings=trainings)


def _made() -> list[dict[str, Any]]:
    """The trainings of this commit that an earlier run has measured."""
    file = ROOT / "benchmarks" / "results" / "replaced.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return before["trainings"] if before.get("revision") == results.revision() else []
