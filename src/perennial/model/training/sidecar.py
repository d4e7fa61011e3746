"""Score the checkpoints of a training while it runs in another process."""

import contextlib
import json
import logging
import math
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
import typer
from pydantic import Field, ValidationError

from perennial.base import files
from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.devices import devices
from perennial.base.documents import JsonFile
from perennial.base.errors import ConfigError, DataError, PerennialError, QualityError
from perennial.base.processes import locks, process
from perennial.data.records import manifest, pipeline
from perennial.model import export_layout
from perennial.model.evaluation import inference, scoring
from perennial.model.evaluation.scoring import Scores
from perennial.model.evaluation.split import require_finite, require_split
from perennial.model.models import model_folder
from perennial.model.models.model_folder import Description
from perennial.model.training import checkpoints
from perennial.model.training.snapshot import Snapshot
from perennial.model.training.tensorboard import EventWriter
from perennial.model.training.training_history import FINISHED, STEPS_FILE
from perennial.model.training.triggers import StoppedBy

log = logging.getLogger(__name__)
OPTIONAL = Field(default=None, exclude_if=lambda value: value is None)
SHOWN = {"map": "mAP", "recall_at_5": "recall@5"}  # names of scores for people
NO_TRAINING = (checkpoints.FILE, model_folder.FILE, export_layout.GRAPH)  # of one checkpoint or a model


class Result(JsonFile, extra="forbid"):
    """Scores of one checkpoint; a line of the results file."""

    checkpoint: str  # name of its folder
    sha256: str  # of its description, which holds the digests of its other files
    step: int
    split: str
    examples: int
    partial: bool  # whether the split has more examples
    accuracy: float | None = OPTIONAL  # of one label an image, as is recall_at_5
    map: float | None = OPTIONAL  # of several
    loss: float
    recall_at_5: float | None = OPTIONAL
    weights_sha256: str  # of the weights as they were scored
    stopped_by: StoppedBy | None  # what ended the training at this step

    @property
    def scores(self) -> dict[str, float]:
        """The scores by name, as those of an evaluation."""
        return self.model_dump(include={"accuracy", "map", "loss", "recall_at_5"})


class CheckpointScorer:
    """Score checkpoints of a training one after the other on a split, or on its first batches.

    Create it before anything uses a device. It uses no GPU unless `evaluate.devices` names one, because the
    training has reserved all memory of its own.
    """

    def __init__(self, config: Config, split: Split, max_batches: int | None) -> None:
        """Check the records."""
        chosen = config.evaluate.devices
        kind, numbers = devices.select("cpu:1" if chosen == "auto" else chosen, key="evaluate.devices")
        devices.disable_tf32()
        (self._device,) = devices.configure(kind, numbers[:1])
        self._records, self.split, self._memory_mb = config.paths.records, split, config.train.memory_mb
        self._data = require_split(self._records, split)
        self._batch_size, whole = config.evaluate.batch_size, self._data.splits[split].examples
        self.examples = whole if max_batches is None else min(whole, max_batches * self._batch_size)
        self.partial = self.examples < whole
        self._model: Any = None  # built for the first checkpoint

    def score(self, taken: Snapshot) -> tuple[Scores, str]:
        """Score a checkpoint in float32, as `evaluate` does; returns also the SHA-256 of the weights it scored.

        A training in float32 has the same scores.
        """
        if self._model is None:
            self._prepare(taken)
        # Weights that have an average are replaced by it.
        values = {**taken.group("weights"), **taken.group("averages")}
        named = {f"weights/{name}": value for name, value in values.items()}
        Snapshot(step=taken.step, facts={}, values=named).restore({"weights": self._model.weights})
        require_finite(self._model)
        with tf.device(self._device), pipeline.naming_shards(self._records, self._data):
            logits = inference.batch_logits(self._predict, self._batches)
            scores = scoring.score(logits, classes=self._classes, examples=self.examples)
        return scores, model_folder.weights_sha256(self._model)

    def _prepare(self, taken: Snapshot) -> None:
        """Build the model of a training, and the batches to score it on."""
        try:
            description = Description.model_validate_json(files.json_bytes(taken.facts["model"]))
        except (LookupError, ValidationError) as error:
            raise DataError(
                f"the checkpoint of step {taken.step} does not describe its model as this version of the "
                "program does; it was not scored; use the code that wrote it"
            ) from error
        if description.data != (digest := manifest.digest(self._records)):
            raise DataError(
                f"the training is on the records with manifest {description.data}, {self._records} has "
                f"{digest}; nothing was scored; restore those records, or name its params.yaml"
            )
        self._classes = len(description.classes)
        with tf.device(self._device):
            self._model = description.build()
            self._predict = inference.predictor(self._model, description.pixels)
        self._batches = pipeline.batches(
            self._records,
            self._data,
            self.split,
            description.pixels,
            batch_size=self._batch_size,
            label_map=pipeline.LabelMap(description.options.labels_offset),
            # TensorFlow discards the cache of a dataset that is not read to the end.
            cache_mb=0 if self.partial else self._memory_mb,
        ).take(math.ceil(self.examples / self._batch_size))


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
    with locks.held(home / f"{name}.lock", "evaluate --watch", busy="another process scores the same"):
        logs = config.paths.runs / "tensorboard" / training.name[:12] / f"watch_{name}"
        sidecar = _Sidecar(training, scorer, home / f"{name}.jsonl", logs)
        log.info("scoring the checkpoints of %s on %d %s examples", training, scorer.examples, split)
        sidecar.run(once=once, every_s=every_s)
        if as_json:
            results = [result.model_dump(mode="json") for result in sidecar.results]
            found = {"training": training.name, "split": split, "results": results}
            typer.echo(json.dumps(found, indent=2, sort_keys=True, allow_nan=False))
        sidecar.raise_problem()


def _require_trainings(folder: Path, trainings: Path) -> None:
    """Check that a folder can hold checkpoints; only the project's own need not exist yet."""
    missing = not folder.is_dir() and folder.resolve() != trainings.resolve()
    if missing or any((folder / name).exists() for name in NO_TRAINING):
        raise ConfigError(
            f"--watch {folder} is no training; name a training's folder of checkpoints, or {trainings}, where "
            "each has its own; a model is scored with --model"
        )


def _sleep(seconds: float) -> None:
    process.raise_if_signalled()  # native code can swallow the exception
    time.sleep(seconds)


def _newest_training(folder: Path) -> Path | None:
    """The folder itself if it is a training's, otherwise the most recently written one below it."""
    trainings = [path for path in (folder, *folder.glob("[!.]*")) if (path / STEPS_FILE).exists()]
    if not trainings:
        return None
    return (folder if folder in trainings else max(trainings, key=_last_written)).resolve()


def _last_written(training: Path) -> float:
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        return (training / STEPS_FILE).stat().st_mtime
    return 0.0


class _Sidecar:
    """The checkpoints of a training, and their results: in a JSON Lines file and as curves of TensorBoard."""

    def __init__(self, training: Path, scorer: CheckpointScorer, file: Path, logs: Path) -> None:
        """Read earlier results, if there are any, and write their curves into `logs` again."""
        self._training, self._scorer, self._file = training, scorer, file
        self._problems: dict[Path, PerennialError] = {}
        try:
            lines = file.read_bytes().splitlines() if file.exists() else []
            self.results = [Result.model_validate_json(line) for line in lines]
        except ValidationError as error:
            raise DataError(
                f"{file} is not a file of results: {error.errors()[0]['msg']}; "
                "move it away to score the existing checkpoints again"
            ) from error
        self._events = EventWriter(logs, purge_step=0)
        for result in self.results:
            self._show(result)

    def _show(self, result: Result) -> None:
        # The names of the training's own curves, so that they share their charts.
        self._events.add_scalars(result.step, result.split, result.scores)

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
        log.info("%d checkpoints are scored", len(self.results))

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
            known = any(result.sha256 == digest for result in self.results)
            if not known and not isinstance(self._problems.get(path), QualityError):
                scored += self._score(path, digest)
        return scored

    def _last_is_scored(self) -> bool:
        """Whether the newest checkpoint is the last one of its training, and scored."""
        newest = {_digest(path) for path in checkpoints.committed(self._training)[-1:]}
        return any(result.stopped_by for result in self.results if result.sha256 in newest)

    def _score(self, path: Path, digest: str) -> bool:
        """Score a checkpoint and save its result; False if it fails. A failure is logged once."""
        started = time.monotonic()
        try:
            taken = checkpoints.read(path)
        except DataError as error:
            return self._skip(path, error)
        try:
            scores, weights_sha256 = self._scorer.score(taken)
        except QualityError as error:
            return self._skip(path, error)
        self._problems.pop(path, None)
        result = Result(
            checkpoint=path.name,
            sha256=digest,
            step=taken.step,
            split=self._scorer.split,
            examples=scores.examples,
            partial=self._scorer.partial,
            **scores.summary,
            weights_sha256=weights_sha256,
            stopped_by=taken.facts["stopped_by"],
        )
        with process.signals_held():
            self.results.append(result)
            content = b"".join(each.model_dump_json().encode() + b"\n" for each in self.results)
            files.write_bytes(self._file, content)
            self._show(result)
        log.info(
            "step %d: %s %s of %d examples%s, in %.2f s", result.step, result.split,
            ", ".join(f"{SHOWN.get(name, name)} {value:.4f}" for name, value in result.scores.items()),
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
