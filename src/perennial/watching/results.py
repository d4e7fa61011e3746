"""What a watch has found, a line a checkpoint, so that it can be killed and repeats nothing."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from perennial import files
from perennial.errors import DataError
from perennial.training import events
from perennial.training.stopping import Metric, StoppedBy, best


class Result(BaseModel):
    """The scores of a checkpoint, and what they are of."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    checkpoint: str  # the name of its folder
    sha256: str  # of its description, which holds the digests of its other files
    step: int
    split: str
    examples: int
    partial: bool  # whether the split has more examples
    accuracy: float
    loss: float
    recall_at_5: float
    weights_sha256: str  # of the weights as they were scored
    stopped_by: StoppedBy | None  # what ended the training at this step

    @property
    def folder(self) -> str:
        """A name for the folder of its model that no other weights share."""
        return f"{self.checkpoint}-{self.weights_sha256[:12]}"


class Results:
    """The results in a file, shown as TensorBoard scalars too; each is on the disk before `add` returns."""

    def __init__(self, file: Path, logs: Path) -> None:
        """Drops a line that a kill cut short, and writes TensorBoard's file in `logs` anew.

        Raises:
            DataError: the file holds something else.
        """
        self._file, self._events = file, logs / f"{events.PREFIX}{time.time():.0f}"
        self.all = _read(file)
        files.write_bytes(file, b"".join(map(_line, self.all)))
        for old in logs.glob(f"{events.PREFIX}*"):
            old.unlink()
        files.write_bytes(self._events, b"".join([events.START, *map(_point, self.all)]))

    def __contains__(self, sha256: str) -> bool:
        return any(result.sha256 == sha256 for result in self.all)

    def add(self, result: Result) -> None:
        """Notes a result."""
        with self._file.open("ab") as stream:
            stream.write(_line(result))
            stream.flush()
            os.fsync(stream.fileno())
        self.all.append(result)
        with self._events.open("ab") as stream:
            stream.write(_point(result))

    def best(self, metric: Metric, *more: Result) -> Result | None:
        """The best of these and some more, the first of equals."""
        known: Sequence[Result] = [*self.all, *more]
        index = best(metric, [getattr(result, metric) for result in known])
        return None if index is None else known[index]


def _read(file: Path) -> list[Result]:
    try:
        whole = file.read_bytes().rpartition(b"\n")[0]
        return [Result.model_validate_json(line) for line in whole.splitlines()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise DataError(
            f"{file} holds something other than results: {error.errors()[0]['msg']}; "
            "move it away to score the checkpoints that are there anew"
        ) from error


def _line(result: Result) -> bytes:
    return result.model_dump_json().encode() + b"\n"


def _point(result: Result) -> bytes:
    values = {"accuracy": result.accuracy, "loss": result.loss, "recall_at_5": result.recall_at_5}
    # The names of the training's own curves, so that they share their charts.
    return events.record(
        result.step, (events.scalar(f"{result.split}/{name}", value) for name, value in values.items())
    )
