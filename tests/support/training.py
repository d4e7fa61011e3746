"""Small trainings of the digits, on records that are made once."""

import contextlib
import csv
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.parameters import change_params

from perennial.base import config, documents
from perennial.base.config import Config
from perennial.base.project.pins import PinnedTeacher, WeightsPin
from perennial.data.sources import weights
from perennial.model.export import saved_model
from perennial.model.models import model_folder
from perennial.model.training import checkpoints
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.initialize import initialize
from perennial.stages.train import train
from perennial.stages.validate import validate

ROOT = Path(__file__).parents[2]
TEACHER = Path("data", "initial_weights", "teacher")  # the copy of its export
Weights = dict[str, NDArray[np.float32]]  # by path: conv1/kernel
# Three updates whose numbers are easy to follow: no penalty, no dropout, no momentum.
PLAIN: Mapping[str, object] = {
    "model.dropout": 0.0, "train.epochs": None, "train.max_steps": 3, "train.stop_threshold": None,
    "train.optimizer": "sgd", "train.learning_rate": 0.1, "checkpoints.max_to_keep": 100,
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What a training left in the folder that it worked in."""

    config: Config
    record: dict[str, Any]
    weights: Weights  # of the model folder
    folder: Path  # of the checkpoints
    steps: list[dict[str, float]]  # what was written down of each update

    def checkpoint(self, step: int, group: str = "weights") -> Weights:
        (path,) = (each for each in checkpoints.committed(self.folder) if int(each.name[5:14]) == step)
        return checkpoints.read(path, group).group(group)


def parameters(values: Mapping[str, object]) -> Config:
    """The project's parameters with those of PLAIN and some more, in the folder that the test works in."""
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    change_params(Path("params.yaml"), {**PLAIN, **values})
    return config.load(Path("params.yaml"))


def initialize_weights(chosen: Config) -> None:
    """Pins and copies the weights that a training starts from, as the flow does."""
    weights.pin(chosen)
    initialize(chosen)


def prepare(folder: Path, values: Mapping[str, object] | None = None) -> Path:
    """The folder, with validated records of the digits in it."""
    with contextlib.chdir(folder):
        for stage in (download, convert, validate):
            stage(parameters(values or {}))
    return folder


def run(
    values: Mapping[str, object] | None = None, *more: Callable[[Config], None], clean: bool = False
) -> Outcome:
    """Trains in the folder that the test works in, and runs the stages that are named after it."""
    chosen = parameters(values or {})
    train(chosen, clean=clean)
    for stage in more:
        stage(chosen)
    return outcome(chosen)


def outcome(chosen: Config) -> Outcome:
    """What the newest training with these paths left."""
    folder = max((chosen.paths.work / "train").glob("*/finished"), key=lambda file: file.stat().st_mtime).parent
    model, _ = model_folder.load(chosen.paths.model)
    return Outcome(
        config=chosen,
        record=documents.read_json(chosen.paths.training),
        weights={weight.path: weight.numpy() for weight in model.weights},
        folder=folder,
        steps=table(folder / "steps.csv"),
    )


def rewind(step: int, folder: Path = Path()) -> None:
    """Make the training in a folder one that was interrupted once it had saved a step."""
    (made,) = (folder / ".work" / "train").iterdir()
    (made / "finished").unlink()
    for path in checkpoints.committed(made):
        if checkpoints.step_of(path) > step:
            shutil.rmtree(path)
    assert checkpoints.steps(made)[-1] == step


def table(file: Path) -> list[dict[str, float]]:
    """The numbers in a CSV file, a row each."""
    with file.open() as lines:
        return [{name: float(value) for name, value in line.items()} for line in csv.DictReader(lines)]


def teach(model: Path, **changes: object) -> None:
    """Make the model in a folder the teacher of the trainings in this one, as `initialize` does."""
    network, description = model_folder.load(model)
    shutil.rmtree(TEACHER, ignore_errors=True)
    TEACHER.mkdir(parents=True)
    saved_model.save(TEACHER, network, description.model_copy(update=changes), ())
    pinned = PinnedTeacher(path="champion", version="v0.0.1", commit="c" * 40)
    WeightsPin(teacher=pinned).write()
