"""Score the checkpoints of a training while it runs in another process."""

import contextlib
import json
import logging
import os
import time
from pathlib import Path

import typer
from pydantic import BaseModel, ConfigDict, ValidationError

from perennial.base import files
from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError, PerennialError, QualityError
from perennial.base.processes import locks, process
from perennial.model import export_layout
from perennial.model.models import model_folder
from perennial.model.training import checkpoints
from perennial.model.training.checkpoint_scorer import CheckpointScorer
from perennial.model.training.tensorboard import EventWriter
from perennial.model.training.training_history import FINISHED, STEPS_FILE
from perennial.model.training.triggers import StoppedBy

log = logging.getLogger(__name__)


class Result(BaseModel):
    """Scores of one checkpoint; a line of the results file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    checkpoint: str  # name of its folder
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


class Results:
    """Results in a JSON Lines file and as TensorBoard scalars; `add` returns once a result is on disk."""

    def __init__(self, file: Path, logs: Path) -> None:
        """Read the file, ignoring a line that a kill cut short; rewrite it and TensorBoard's file in `logs`."""
        self._file = file
        try:
            lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
            self.all = [Result.model_validate_json(line) for line in lines if line.endswith(b"\n")]
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}") from error
        except ValidationError as error:
            raise DataError(
                f"{file} is not a file of results: {error.errors()[0]['msg']}; "
                "move it away to score the existing checkpoints again"
            ) from error
        files.write_bytes(file, b"".join(map(_line, self.all)))
        self._events = EventWriter(logs, purge_step=0)
        for result in self.all:
            self._show(result)

    def __contains__(self, sha256: str) -> bool:
        return any(result.sha256 == sha256 for result in self.all)

    def add(self, result: Result) -> None:
        """Append a result."""
        with self._file.open("ab") as stream:
            stream.write(_line(result))
            stream.flush()
            os.fsync(stream.fileno())
        self.all.append(result)
        self._show(result)

    def _show(self, result: Result) -> None:
        values = {"accuracy": result.accuracy, "loss": result.loss, "recall_at_5": result.recall_at_5}
        # The names of the training's own curves, so that they share their charts.
        self._events.add_scalars(result.step, result.split, values)


def watch(
    config: Config,
    folder: Path,
    *,
    split: Split,
    once: bool,
    every_s: float,
    max_batches: int | None,
    as_json: bool,
) -> None:
    """Score the checkpoints of the training in `folder`, or of the newest training below it.

    Checks for new checkpoints every `every_s` seconds until the training has ended or is removed; with `once`,
    only once. Checkpoints scored by an earlier call are not scored again.
    """
    _require_trainings(folder, config.paths.work / "train")
    training = _newest_training(folder)
    if training is None and once:
        raise DataError(f"--watch {folder}: there is no training in it yet; nothing was scored")
    if training is None:
        log.info("waiting: there is no training in %s yet; looking every %g s", folder, every_s)
    scorer = CheckpointScorer(config, split, max_batches)
    while training is None:
        _sleep(every_s)
        training = _newest_training(folder)
    name = f"{split}-first-{scorer.examples}" if scorer.partial else split
    home = config.paths.work / "watch" / training.name
    files.make_folder(home)
    with locks.held(home / f"{name}.lock", "evaluate --watch", busy="another process scores the same"):
        logs = config.paths.runs / "tensorboard" / training.name[:12] / f"watch_{name}"
        sidecar = _Sidecar(training, scorer, split, Results(home / f"{name}.jsonl", logs))
        log.info("scoring the checkpoints of %s on %d %s examples", training, scorer.examples, split)
        sidecar.run(once=once, every_s=every_s)
        if as_json:
            typer.echo(json.dumps(sidecar.as_json(), indent=2, sort_keys=True, allow_nan=False))
        sidecar.raise_problem()


def _require_trainings(folder: Path, trainings: Path) -> None:
    """Check that a folder can hold checkpoints; only the project's own need not exist yet."""
    if (folder / checkpoints.FILE).exists():
        raise ConfigError(f"--watch {folder} is one checkpoint; name its parent {folder.parent}")
    if (folder / model_folder.FILE).exists() or (folder / export_layout.GRAPH).exists():
        raise ConfigError(f"--watch {folder} is a model, not a training; name it with --model instead")
    if not folder.is_dir() and folder.resolve() != trainings.resolve():
        raise ConfigError(
            f"--watch {folder} {'is not a folder' if folder.exists() else 'does not exist'}; name a training's "
            f"folder of checkpoints, or {trainings}, where each training has its own"
        )


def _sleep(seconds: float) -> None:
    process.raise_if_signalled()  # native code can swallow the exception
    time.sleep(seconds)


def _newest_training(folder: Path) -> Path | None:
    """The folder itself if it is a training's, otherwise the most recently written one below it."""
    if _last_written(folder):
        return folder.resolve()
    others = [path for path in sorted(folder.glob("[!.]*")) if _last_written(path)]
    return max(others, key=_last_written).resolve() if others else None


def _last_written(folder: Path) -> float:
    """When a training last wrote to its folder, in seconds; 0 if the folder is not a training's."""
    times = [0.0]
    for path in (folder / STEPS_FILE, *(checkpoints.committed(folder)[-1:] if folder.is_dir() else ())):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            times.append(path.stat().st_mtime)
    return max(times)


class _Sidecar:
    """The checkpoints of a training, and their results."""

    def __init__(self, training: Path, scorer: CheckpointScorer, split: Split, results: Results) -> None:
        self._training, self._scorer, self._split, self._results = training, scorer, split, results
        self._problems: dict[Path, PerennialError] = {}

    def run(self, *, once: bool, every_s: float) -> None:
        """Score new checkpoints until the training has ended."""
        while True:
            ended = (self._training / FINISHED).exists()  # before looking for the last checkpoint
            scored = self._score_new()
            if once or (not scored and (ended or self._last_is_scored())):
                break
            if not self._training.exists():
                log.info("%s is gone: removed by --clean, or replaced by another training", self._training)
                break
            if not scored:
                _sleep(every_s)
        log.info("%d checkpoints are scored", len(self._results.all))

    def as_json(self) -> dict[str, object]:
        """All results of this training, including those of earlier calls."""
        return {
            "training": self._training.name,
            "split": self._split,
            "results": [result.model_dump(mode="json") for result in self._results.all],
        }

    def raise_problem(self) -> None:
        """Raise the error of the first existing checkpoint that could not be scored."""
        for path, problem in self._problems.items():
            if path.exists():
                raise problem

    def _score_new(self) -> int:
        """Score new checkpoints, oldest first because they are removed first; returns their number."""
        scored = 0
        for path in checkpoints.committed(self._training):
            process.raise_if_signalled()  # native code can swallow the exception
            digest = _digest(path)
            if digest not in self._results and not isinstance(self._problems.get(path), QualityError):
                scored += self._score(path, digest)
        return scored

    def _last_is_scored(self) -> bool:
        """Whether the newest checkpoint is the last one of its training, and scored."""
        newest = {_digest(path) for path in checkpoints.committed(self._training)[-1:]}
        return any(result.stopped_by for result in self._results.all if result.sha256 in newest)

    def _score(self, path: Path, digest: str) -> bool:
        """Score a checkpoint and save its result; False if it fails. A failure is logged once."""
        started = time.monotonic()
        try:
            taken = checkpoints.read(path)
        except DataError as error:
            return self._skip(path, error)
        try:
            scored = self._scorer.score(taken)
        except QualityError as error:
            return self._skip(path, error)
        self._problems.pop(path, None)
        result = Result(
            checkpoint=path.name,
            sha256=digest,
            step=taken.step,
            split=self._split,
            examples=scored.scores.examples,
            partial=self._scorer.partial,
            accuracy=scored.scores.accuracy,
            loss=scored.scores.loss,
            recall_at_5=scored.scores.recall_at_5,
            weights_sha256=scored.weights_sha256,
            stopped_by=taken.facts["stopped_by"],
        )
        with process.signals_held():
            self._results.add(result)
        log.info(
            "step %d: %s accuracy %.4f, loss %.4f, recall@5 %.4f of %d examples%s, in %.2f s",
            result.step, self._split, result.accuracy, result.loss, result.recall_at_5,
            result.examples, " (the first ones)" if result.partial else "", time.monotonic() - started,
        )  # fmt: skip
        return True

    def _skip(self, path: Path, error: PerennialError) -> bool:
        if not path.exists():
            log.info("%s vanished before it was scored: its training keeps only the last ones", path.name)
        elif path not in self._problems:
            log.warning("%s is skipped: %s", path.name, error)
            self._problems[path] = error
        return False


def _digest(path: Path) -> str:
    """SHA-256 of a checkpoint's description, which names the digests of its files; "" if it is gone."""
    try:
        return files.sha256(path / checkpoints.FILE)
    except OSError:
        return ""


def _line(result: Result) -> bytes:
    return result.model_dump_json().encode() + b"\n"
