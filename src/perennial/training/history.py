"""What a training has done so far, each step once: kept beside the checkpoints, shown as curves.

A training that was killed ran on after its last checkpoint; what it wrote of those steps is dropped when it
resumes.
"""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import groupby
from pathlib import Path

from perennial import files

STEPS_FILE = "steps.csv"
TRAINING_CURVE, VALIDATION_CURVE = "training.csv", "validation.csv"
POINTS = 1000  # of a curve at most, however long the training


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The model's scores on validation."""

    epoch: int  # epochs begun
    step: int  # updates done
    accuracy: float
    loss: float
    recall_at_5: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One update."""

    step: int  # counted from 1
    loss: float
    total_loss: float
    learning_rate: float


class History:
    """The rows of all steps in one file, and curves of at most a thousand points that DVC plots."""

    def __init__(self, folder: Path, curves: Path, *, steps: int) -> None:
        self._file, self._curves = folder / STEPS_FILE, curves
        self._interval = max(1, math.ceil(steps / POINTS))
        self._pending: list[Row] = []

    def resume(self, step: int, evaluations: Sequence[Evaluation]) -> list[Row]:
        """Goes back to what was known after `step` updates; returns its rows."""
        rows = [row for row in self._read() if row.step <= step]
        files.write_bytes(self._file, _table(Row, rows))
        self._curves.mkdir(parents=True, exist_ok=True)
        # By their steps, not their places: a power cut can take rows that were not on the disk yet.
        parts = [list(part) for _, part in groupby(rows, lambda row: (row.step - 1) // self._interval)]
        points = [_point(part) for part in parts if part[-1].step % self._interval == 0]
        files.write_bytes(self._curves / TRAINING_CURVE, _table(Row, points))
        files.write_bytes(self._curves / VALIDATION_CURVE, _table(Evaluation, evaluations))
        self._pending = [row for row in rows if row.step > step - step % self._interval]
        return rows

    def steps(self, rows: Sequence[Row]) -> None:
        """Notes updates, in order."""
        _append(self._file, rows)
        points = []
        for row in rows:
            self._pending.append(row)
            if row.step % self._interval == 0:
                points.append(_point(self._pending))
                self._pending = []
        if points:
            _append(self._curves / TRAINING_CURVE, points)

    def evaluation(self, done: Evaluation) -> None:
        """Notes an evaluation."""
        _append(self._curves / VALIDATION_CURVE, [done])

    def _read(self) -> list[Row]:
        """The rows in the file; a last line that a kill cut short is left out."""
        if not self._file.exists():
            return []
        whole = self._file.read_text(encoding="utf-8").rpartition("\n")[0]
        return [
            Row(
                step=int(line["step"]),
                loss=float(line["loss"]),
                total_loss=float(line["total_loss"]),
                learning_rate=float(line["learning_rate"]),
            )
            for line in csv.DictReader(io.StringIO(whole))
        ]


def _point(rows: Sequence[Row]) -> Row:
    """The last of some rows, with the means of their losses."""
    last = rows[-1]
    return Row(
        step=last.step,
        loss=math.fsum(row.loss for row in rows) / len(rows),
        total_loss=math.fsum(row.total_loss for row in rows) / len(rows),
        learning_rate=last.learning_rate,
    )


def _append(file: Path, rows: Sequence[Row] | Sequence[Evaluation]) -> None:
    with file.open("ab") as stream:
        stream.write(_lines(rows))


def _table(kind: type[Row | Evaluation], rows: Sequence[Row] | Sequence[Evaluation]) -> bytes:
    """CSV with a header."""
    return (",".join(field.name for field in fields(kind)) + "\n").encode() + _lines(rows)


def _lines(rows: Sequence[Row] | Sequence[Evaluation]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(astuple(row) for row in rows)
    return text.getvalue().encode()
