"""Scores each checkpoint of a training once while the training goes on elsewhere, and keeps the best."""

import contextlib
import json
import logging
import shutil
import time
from pathlib import Path

import typer

from perennial import files
from perennial.config import Config
from perennial.config.names import Split
from perennial.errors import ConfigError, DataError, PerennialError, QualityError
from perennial.models import saved
from perennial.runtime import locks, process
from perennial.training import checkpoints, finished, snapshot
from perennial.training.history import STEPS_FILE
from perennial.watching.results import Result, Results
from perennial.watching.scorer import Scored, Scorer

log = logging.getLogger(__name__)
BEST = "best"  # a link to the model folder of the best checkpoint


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
    """Scores the checkpoints in a folder, or in that of the newest training in it, and those that come.

    Looks for new ones every so many seconds until the training has ended or is removed; with `once` a single
    time. What was found before is known and not done again.

    Raises:
        ConfigError: there is no such folder, it is no training's, or the device is not there.
        DataError: the records are not sound or not the training's, or a checkpoint is damaged.
        QualityError: a model gives logits that are not finite.
        PerennialError: another process does the same.
    """
    _require_trainings(folder, config.paths.work / "train")
    scorer = Scorer(config, split, max_batches)
    training = _training(folder)
    if training is None and once:
        raise DataError(f"--watch {folder}: there is no training in it yet; nothing was scored")
    if training is None:
        training = _awaited(folder, every_s)
    name = f"{split}-first-{scorer.examples}" if scorer.partial else split
    home = config.paths.work / "watch" / training.name
    files.make_folder(home)
    with locks.held(home / f"{name}.lock", "evaluate --watch", busy="another process scores the same"):
        logs = config.paths.runs / "tensorboard" / training.name[:12] / f"watch_{name}"
        watched = _Watch(config, training, scorer, split, Results(home / f"{name}.jsonl", logs))
        log.info("scoring the checkpoints of %s on %d %s examples", training, scorer.examples, split)
        watched.run(once=once, every_s=every_s)
        if as_json:
            typer.echo(json.dumps(watched.told(), indent=2, sort_keys=True, allow_nan=False))
        watched.raise_problem()


def _require_trainings(folder: Path, trainings: Path) -> None:
    """Refuses what is no place for a training's checkpoints; only the project's own need not exist yet."""
    if (folder / snapshot.FILE).exists():
        raise ConfigError(
            f"--watch {folder} is one checkpoint; name {folder.parent}, the folder that it lies in"
        )
    if (folder / saved.FILE).exists() or (folder / saved.GRAPH).exists():
        raise ConfigError(f"--watch {folder} is a model and not a training; name it with --model instead")
    if not folder.is_dir() and folder.resolve() != trainings.resolve():
        raise ConfigError(
            f"--watch {folder} {'is no folder' if folder.exists() else 'does not exist'}; name a training's "
            f"folder of checkpoints, or {trainings}, where each training makes its own"
        )


def _awaited(folder: Path, every_s: float) -> Path:
    log.info("there is no training in %s yet; looking every %g s", folder, every_s)
    while (training := _training(folder)) is None:
        _sleep(every_s)
    return training


def _sleep(seconds: float) -> None:
    process.raise_if_signalled()  # native code was seen to swallow the exception
    time.sleep(seconds)


def _training(folder: Path) -> Path | None:
    """The folder of a training: this one, or the one in it that was worked on last."""
    if _worked_on(folder):
        return folder.resolve()
    others = [path for path in sorted(folder.glob("[!.]*")) if _worked_on(path)]
    return max(others, key=_worked_on).resolve() if others else None


def _worked_on(folder: Path) -> float:
    """When a training last wrote to its folder, in seconds; 0 where it is not a training's."""
    times = [0.0]
    for path in (folder / STEPS_FILE, *(checkpoints.committed(folder)[-1:] if folder.is_dir() else ())):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            times.append(path.stat().st_mtime)
    return max(times)


class _Watch:
    """A training's checkpoints, their results, and the best of the models."""

    def __init__(self, config: Config, training: Path, scorer: Scorer, split: Split, results: Results) -> None:
        self._training, self._scorer, self._split, self._results = training, scorer, split, results
        self._metric, self._home = config.train.stop_metric, config.paths.work / "watch" / training.name
        # The test split decides nothing, and a part of one too little.
        self._keeps_best = split == "validation" and not scorer.partial
        self._problems: dict[Path, PerennialError] = {}
        if self._keeps_best:
            self._point_to_best()

    def run(self, *, once: bool, every_s: float) -> None:
        """Scores what is there, again and again."""
        while True:
            ended = (self._training / finished.MARK).exists()  # asked before the last checkpoint is looked for
            scored = self._score_all()
            if once or (not scored and (ended or self._was_last())):
                break
            if not self._training.exists():
                log.info("%s is gone: started anew with --clean, or another took its place", self._training)
                break
            if not scored:
                _sleep(every_s)
        log.info("%d checkpoints are scored; %s", len(self._results.all), self._told_best())

    def told(self) -> dict[str, object]:
        """All results of this training, those of earlier runs too."""
        best = self._best
        return {
            "training": self._training.name,
            "split": self._split,
            "results": [result.model_dump(mode="json") for result in self._results.all],
            "best": best and {**best.model_dump(mode="json"), "model": self._kept and str(self._kept)},
        }

    def raise_problem(self) -> None:
        """Raises why the first checkpoint that is still there could not be scored."""
        for path, problem in self._problems.items():
            if path.exists():
                raise problem

    @property
    def _best(self) -> Result | None:
        return self._results.best(self._metric) if self._keeps_best else None

    @property
    def _kept(self) -> Path | None:
        """The model of the best; not there where another metric made another one the best before."""
        best, link = self._best, self._home / BEST
        return link if best and (link / saved.FILE).exists() and link.readlink().name == best.folder else None

    def _told_best(self) -> str:
        best = self._best
        if best is None:
            return "no model is kept"
        score = getattr(best, self._metric)
        where = f"in {self._kept}" if self._kept else "whose model was not kept"
        return f"the best is of step {best.step}, {self._metric} {score:.4f}, {where}"

    def _score_all(self) -> int:
        """Scores the new checkpoints, the oldest first: it is the next to be removed. How many."""
        scored = 0
        for path in checkpoints.committed(self._training):
            process.raise_if_signalled()  # native code was seen to swallow the exception
            digest = _digest(path)
            if digest not in self._results and not isinstance(self._problems.get(path), QualityError):
                scored += self._score(path, digest)
        return scored

    def _was_last(self) -> bool:
        """Whether the newest checkpoint is that of a training's end."""
        newest = checkpoints.committed(self._training)[-1:]
        known = {result.sha256: result for result in self._results.all}
        return any(known[digest].stopped_by for path in newest if (digest := _digest(path)) in known)

    def _score(self, path: Path, digest: str) -> bool:
        """Scores a checkpoint and notes it; False where it cannot be, which is said once."""
        started = time.monotonic()
        try:
            taken = snapshot.read(path)
        except DataError as error:
            self._pass_over(path, error)
            return False
        try:
            scored = self._scorer.score(taken)
        except QualityError as error:
            self._pass_over(path, error)
            return False
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
            weights_sha256=scored.description.weights_sha256,
            stopped_by=taken.facts["stopped_by"],
        )
        with process.signals_held():
            self._note(result, scored)
        log.info(
            "step %d: %s accuracy %.4f, loss %.4f, recall@5 %.4f of %d examples%s, in %.2f s",
            result.step, self._split, result.accuracy, result.loss, result.recall_at_5,
            result.examples, " (the first ones)" if result.partial else "", time.monotonic() - started,
        )  # fmt: skip
        return True

    def _pass_over(self, path: Path, error: PerennialError) -> None:
        if not path.exists():
            log.info("%s vanished before it was scored: its training keeps only the last ones", path.name)
        elif path not in self._problems:
            log.warning("%s is passed over: %s", path.name, error)
            self._problems[path] = error

    def _note(self, result: Result, scored: Scored) -> None:
        """Saves the model if it is the best, before the result is noted that says so."""
        best = self._keeps_best and self._results.best(self._metric, result) == result
        if best:
            saved.save(self._home / result.folder, scored.model, scored.description)
        self._results.add(result)
        if best:
            self._point_to_best()

    def _point_to_best(self) -> None:
        """Lets the link lead to the model of the best result; removes the others."""
        best = self._best
        if best is None or not (self._home / best.folder).is_dir():
            return
        files.point(self._home / BEST, best.folder)
        for path in self._home.glob("*step-*"):  # what a kill left half-written has a dot before it
            if path.name != best.folder:
                shutil.rmtree(path, ignore_errors=True)


def _digest(path: Path) -> str:
    """The SHA-256 of what describes a checkpoint, and through it of all that it holds; "" where it is gone."""
    try:
        return files.sha256(path / snapshot.FILE)
    except OSError:
        return ""
