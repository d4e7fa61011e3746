"""The progress of a training: its state, its evaluations and the metrics of every step, each step once.

Step metrics are in the run folder; curves for people and DVC are in metrics/curves. A killed training may have
recorded steps after its last checkpoint; they are dropped when it resumes.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields, make_dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from perennial.base import files
from perennial.base.choices import STOP_METRICS, Task
from perennial.model.training.triggers import StoppedBy

FOLDER = "train"  # in paths.work, with a run folder for each training
FINGERPRINT, FINISHED, STEPS_FILE = "fingerprint.json", "finished", "steps.csv"  # in a run folder
TRAINING_CURVE, VALIDATION_CURVE = "training.csv", "validation.csv"
POINTS = 1000  # maximum points of a curve, however long the training


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of the model on the validation split."""

    epoch: int  # epochs started
    step: int


# With the scores of each task as further fields.
EVALUATIONS: dict[Task, Any] = {
    task: make_dataclass(
        "Evaluation", [(name, float) for name in names], bases=(Evaluation,), frozen=True, kw_only=True
    )
    for task, names in STOP_METRICS.items()
}


@dataclass
class TrainingState:
    """The progress of a training, apart from its variables."""

    step: int = 0  # steps done
    evaluations: list[Evaluation] = field(default_factory=list)
    best_step: int | None = None  # of the evaluation with the best stop_metric
    stopped_by: StoppedBy | None = None

    @property
    def evaluated(self) -> bool:
        """Whether the current weights have been evaluated."""
        return bool(self.evaluations) and self.evaluations[-1].step == self.step


@dataclass(frozen=True, kw_only=True)
class Row:
    """The metrics of one step; total_loss is the sum of the other losses, the one that is differentiated."""

    step: int  # counted from 1
    loss: float  # mean cross-entropy of the batch, with class weights and label smoothing
    total_loss: float
    learning_rate: float
    aux_loss: float = 0.0  # of the auxiliary classifier, multiplied by train.aux_loss_weight
    l2_loss: float = 0.0
    # Of the batch, before the step, 0..1; of several labels, the share that is right at a probability of 0.5.
    train_accuracy: float = 0.0


class History:
    """The rows of all steps in one file, and curves of at most a thousand points."""

    def __init__(self, folder: Path, curves: Path, kind: type[Evaluation], *, steps: int) -> None:
        self._file, self._curves, self._kind = folder / STEPS_FILE, curves, kind
        self._interval = max(1, math.ceil(steps / POINTS))
        self._pending: list[Row] = []

    def resume(self, step: int, evaluations: Sequence[Evaluation]) -> list[Row]:
        """Drop everything after `step`; returns the rows up to it."""
        rows = [row for row in self._read() if row.step <= step]
        files.write_bytes(self._file, _table(Row, rows))
        self._curves.mkdir(parents=True, exist_ok=True)
        # Select by step, not by index: after a power cut, rows that were not yet on the disk are missing.
        parts = [list(part) for _, part in groupby(rows, lambda row: (row.step - 1) // self._interval)]
        points = [_point(part) for part in parts if part[-1].step % self._interval == 0]
        files.write_bytes(self._curves / TRAINING_CURVE, _table(Row, points))
        files.write_bytes(self._curves / VALIDATION_CURVE, _table(self._kind, evaluations))
        self._pending = [row for row in rows if row.step > step - step % self._interval]
        return rows

    def add_steps(self, rows: Sequence[Row]) -> None:
        """Append the rows of some steps, in order."""
        _append(self._file, rows)
        for row in rows:
            self._pending.append(row)
            if row.step % self._interval == 0:
                _append(self._curves / TRAINING_CURVE, [_point(self._pending)])
                self._pending = []

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Append an evaluation."""
        _append(self._curves / VALIDATION_CURVE, [evaluation])

    def flush(self) -> None:
        """Flush the curves to the disk, since they are an output of the stage."""
        for name in (TRAINING_CURVE, VALIDATION_CURVE):
            files.sync(self._curves / name)

    def _read(self) -> list[Row]:
        """Read the rows from the file, ignoring a last line that a kill cut short."""
        if not self._file.exists():
            return []
        whole = self._file.read_text(encoding="utf-8").rpartition("\n")[0]
        return [
            Row(step=int(line.pop("step")), **{name: float(value) for name, value in line.items()})
            for line in csv.DictReader(io.StringIO(whole))
        ]


def until(folder: Path, step: int) -> bytes:
    """Read the rows of a run folder up to a step as bytes, empty without a file; any thread may call it."""
    file = folder / STEPS_FILE
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    header, rows = lines[:1], [line for line in lines[1:] if line.endswith(b"\n")]
    return b"".join([*header, *(row for row in rows if int(row.partition(b",")[0]) <= step)])


def _point(rows: Sequence[Row]) -> Row:
    """One point for some rows: the last row, with the means of their metrics."""
    names = ("loss", "total_loss", "aux_loss", "l2_loss", "train_accuracy")
    means = {name: math.fsum(getattr(row, name) for row in rows) / len(rows) for name in names}
    return Row(step=rows[-1].step, learning_rate=rows[-1].learning_rate, **means)


def _append(file: Path, rows: Sequence[Row | Evaluation]) -> None:
    with file.open("ab") as stream:
        stream.write(_lines(map(astuple, rows)))


def _table(kind: type[Row | Evaluation], rows: Sequence[Row | Evaluation]) -> bytes:
    return _lines([[field.name for field in fields(kind)], *map(astuple, rows)])


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
