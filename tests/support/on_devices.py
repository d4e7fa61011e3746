"""Trainings on so many parts of the CPU, one after the other.

`python -m support.on_devices 2` works in a folder with validated records. Each line of its input holds the
values of some parameters, and whether to resume; the answer to it is a line that holds what the training gave,
or its error. Each training has a process of its own, since a CPU can be split only once, and TensorFlow mixes
up the collective operations of two strategies. They share the import of TensorFlow alone.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from keras import Input, Model, layers
from support import forks
from support.training import PLAIN, Outcome, rewind, run, teach

from perennial.base.config.data import ModelConfig
from perennial.model.models import MODELS
from perennial.model.models.layers import Dropout
from perennial.model.training import checkpoints

STEPS, SAVED = 8, 4  # of a training; the step that it resumes from


class Trained(NamedTuple):
    """What a training gave."""

    losses: list[float]  # of each step, and of the evaluations
    weights: list[float]  # of the model, one after the other
    averages: list[float]  # in the last checkpoint, with the slots of the optimizers
    resumed_equally: bool  # whether all of it is the same bit by bit after resuming from step SAVED

    def difference(self, other: Self) -> tuple[float, float]:
        """The largest one of a loss, and of a weight."""
        losses, weights = (
            float(np.max(np.abs(np.subtract(own, others))))
            for own, others in ((self.losses, other.losses), (self.weights, other.weights))
        )
        return losses, weights


class Devices:
    """A process that trains on so many devices, in a folder of its own; `close` ends it."""

    def __init__(self, records: Path, folder: Path, count: int) -> None:
        shutil.copytree(records, folder, dirs_exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.folder = folder
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [forks.with_tensorflow(), "-m", __spec__.name, str(count)],
                cwd=folder, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def ask(self, values: Mapping[str, object], *, resume: bool) -> None:
        """Let it train with these values, and resume; several processes then train at the same time."""
        print(json.dumps([values, resume]), file=self._process.stdin, flush=True)

    def answer(self) -> Trained | str:
        """What the training gave that was asked for, or its error."""
        line = self._process.stdout.readline()
        found = json.loads(line) if line else f"the process ended with code {self._process.wait()}"
        return found if isinstance(found, str) else Trained(*found)

    def close(self) -> None:
        self._process.communicate()  # it ends with its input


def network(image: tuple[int, int, int], classes: int, options: ModelConfig) -> Model:
    """A network with normalization, dropout and an auxiliary classifier."""
    inputs = Input(image, name="image")
    # No bias before the normalization: its gradients are 0 but for rounding, which Adam would scale up.
    inner = layers.Conv2D(32, 3, strides=2, padding="same", use_bias=False, name="conv")(inputs)
    # Smooth, so that rounding cannot switch a gradient on or off as it does at the kink of ReLU.
    inner = layers.Activation("softplus")(layers.BatchNormalization(name="norm")(inner))
    inner = layers.GlobalAveragePooling2D(name="pool")(inner)  # for images of any size
    aux = layers.Dense(classes, name="aux")(inner)
    inner = Dropout(options.dropout or 0.0, name="dropout")(inner)
    outputs = {"logits": layers.Dense(classes, name="logits")(inner), "aux_logits": aux}
    return Model(inputs, outputs, name=options.name)


def _train(file: Path, values: Mapping[str, object], *, resume: bool) -> None:
    """Write what a training gave to a file, or its error."""
    answer: list[list[float]] | str
    try:
        if resume:
            rewind(SAVED)
        answer = _found(run(values, clean=not resume))
    except Exception:  # noqa: BLE001 - the test shows it
        answer = traceback.format_exc()
    file.write_text(json.dumps(answer))


def _teach(values: Mapping[str, object]) -> None:
    """Make a model that learned for two steps the teacher, if the values name one."""
    shutil.rmtree("pins", ignore_errors=True)
    if "train.teacher" in values:
        _apart(lambda: teach(run({**PLAIN, "train.max_steps": 2}).config.paths.model))


def _apart(work: Callable[[], None]) -> None:
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        work()
        os._exit(0)


def _answer(values: Mapping[str, object], *, resume: bool) -> Trained | str:
    _teach(values)
    shutil.rmtree(".work", ignore_errors=True)
    whole, resumed = Path("whole.json"), Path("resumed.json")
    for file in (whole, resumed) if resume else (whole,):
        _apart(partial(_train, file, values, resume=file == resumed))
        if isinstance(found := json.loads(file.read_text()), str):
            return found
    return Trained(*found, not resume or whole.read_bytes() == resumed.read_bytes())


def _found(outcome: Outcome) -> list[list[float]]:
    last = max(checkpoints.steps(outcome.folder))
    state = [outcome.checkpoint(last, group) for group in ("averages", "optimizers")]
    scores = [each["loss"] for each in outcome.record["evaluations"]]
    return [
        [step["total_loss"] for step in outcome.steps] + scores,
        _flat(outcome.weights),
        [value for each in state for value in _flat(each)],
    ]


def _flat(arrays: Mapping[str, Any]) -> list[float]:
    return [value for array in arrays.values() for value in np.ravel(array).astype(float).tolist()]


def serve(count: str) -> None:
    MODELS["mnist_cnn"] = dataclasses.replace(MODELS["mnist_cnn"], network=network, head=("logits", "aux"))
    for line in sys.stdin:
        values, resume = json.loads(line)
        print(json.dumps(_answer({**values, "train.devices": f"cpu:{count}"}, resume=resume)), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
