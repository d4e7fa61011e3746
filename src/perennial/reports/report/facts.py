"""Collect the facts of a run from the files that its stages wrote, and its origin; missing parts are named."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import scipy

from perennial.base import documents, files
from perennial.base.choices import STOP_METRICS
from perennial.base.config import Config
from perennial.base.dvc import dvc_lock
from perennial.base.errors import DataError, PerennialError
from perennial.base.layout import PARAMS
from perennial.base.project.git import Repository
from perennial.base.project.stage_table import STAGES
from perennial.data.records import manifest
from perennial.data.records.manifest import Manifest
from perennial.data.validation import validation_report as content
from perennial.model.evaluation import comparison, diagnostics, predictions
from perennial.model.evaluation.comparison import Champion
from perennial.model.evaluation.diagnostics import Matrix, Reliability
from perennial.model.evaluation.plots import Curve
from perennial.model.evaluation.predictions import Predictions
from perennial.model.evaluation.results import Decision, Metrics, RunResults, read_results
from perennial.model.training.training_history import TRAINING_CURVE, VALIDATION_CURVE
from perennial.release.registry.checkout_state import results_in_git

Part = TypeVar("Part")
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)  # of values that are not what a stage writes


class Validation(NamedTuple):
    """Problems and statistics of the validation report."""

    kinds: list[tuple[str, str, int]]  # code, severity and number of problems
    facts: list[tuple[str, list[tuple[str, str]]]]  # title and lines of name and value


class TestPredictions(NamedTuple):
    """Predictions on the test split and their statistics."""

    predictions: Predictions
    confusion: "scipy.sparse.coo_array"  # [classes, classes], by label and prediction; or as `co_confusion`
    matrix: Matrix
    reliability: Reliability


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a run; None for unknown values."""

    revision: str | None
    # Tracked files of the project that differ from the revision's, except those that runs write.
    changed: tuple[str, ...] | None
    lock: str | None  # SHA-256 of dvc.lock
    lock_changed: bool | None  # whether dvc.lock differs from the revision's
    parameters: tuple[str, ...] | None  # keys of params.yaml that differ from those in dvc.lock


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of a run; None for parts that are missing."""

    data: Manifest
    results: RunResults
    validation: Validation | None
    training_curve: Curve | None
    validation_curve: Curve | None
    test: TestPredictions | None
    champion: Champion | None  # None also if there is none, or if it cannot classify these examples
    seconds: Mapping[str, float]  # by stage, of those that ran on this machine
    versions: Mapping[str, str]  # of Python and packages that trained the model; empty if not known
    provenance: Provenance
    missing: Mapping[str, str]  # by part, why it is missing


def collect(config: Config) -> Facts:
    """Read the files that the stages wrote."""
    paths = config.paths
    missing: dict[str, str] = {}
    results = read_results(paths)
    score = STOP_METRICS[results.metrics.task][0]
    digest, bins = manifest.digest(paths.records), config.evaluate.calibration_bins

    def or_none(part: str, file: Path, read: Callable[[Path], Part]) -> Part | None:
        try:
            return read(file)
        except PerennialError as error:
            missing[part] = str(error)
        except (OSError, *UNREADABLE) as error:
            missing[part] = f"{file} cannot be read: {type(error).__name__}: {error}"
        return None

    def curve(part: str, name: str, *columns: str) -> Curve | None:
        return or_none(part, paths.curves / name, lambda file: _curve(file, columns))

    return Facts(
        data=manifest.load(paths.records),
        results=results,
        validation=or_none("validation", paths.validation, lambda file: _validation(file, digest)),
        training_curve=curve("training_curve", TRAINING_CURVE, "step", "loss", "learning_rate"),
        validation_curve=curve("validation_curve", VALIDATION_CURVE, "step", "loss", score),
        test=or_none("test", paths.predictions, lambda file: _test(file, results.metrics, bins)),
        champion=None
        if results.decision.champion is None
        else or_none("champion", paths.champion, lambda folder: _champion(folder, results.decision)),
        seconds=_seconds(paths.work / "timings"),
        versions=_versions(paths.work / "train", results.training.weights_sha256),
        provenance=provenance(results_in_git(paths)),
        missing=missing,
    )


def _test(file: Path, scores: Metrics, bins: int) -> TestPredictions:
    top = predictions.read(file).judged()
    if (top.data, top.model) != (scores.data, scores.model):
        raise DataError(
            f"{file} is of another model or other data than the metrics; `dvc repro evaluate` makes it"
        )
    if top.multilabel:
        names: tuple[str, ...] = (*top.classes, diagnostics.NONE)
        confusion = scipy.sparse.coo_array(diagnostics.co_confusion(top.labels, top.predicted))
        p, right = top.probabilities.ravel(), top.labels.ravel() != 0
    else:
        names, p, right = top.classes, top.p, top.right
        confusion = diagnostics.confusion(top.labels, top.predicted, len(names))
    return TestPredictions(
        predictions=top,
        confusion=confusion,
        matrix=diagnostics.matrix(confusion, names),
        reliability=diagnostics.reliability(p, right, bins=bins),
    )


def _champion(folder: Path, decision: Decision) -> Champion | None:
    opponent = comparison.read(folder)
    if opponent is None or decision.champion is None or opponent.version != decision.champion.version:
        raise DataError(f"{folder} is not the champion of the decision; `dvc repro gate` decides again")
    return None if opponent.problem else opponent


def _validation(file: Path, digest: str) -> Validation:
    if not file.is_file():
        raise DataError(f"{file} does not exist; `dvc repro validate` makes it")
    report = documents.read_json(file)
    if report["statistics"]["manifest"] != digest:
        raise DataError(f"{file} is of other data than these records; `dvc repro validate` rebuilds it")
    return Validation(kinds=content.by_code(report), facts=content.titled(report["statistics"]))


def _curve(file: Path, columns: Sequence[str]) -> Curve:
    """Columns of numbers of a CSV file."""
    if not file.exists():
        raise DataError(f"{file} does not exist; `dvc repro train` makes it")
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        curves = {name: np.array([float(row[name]) for row in rows]) for name in columns}
    except (csv.Error, *UNREADABLE) as error:
        raise DataError(f"{file} cannot be read ({error!r}); `dvc repro -f train` rebuilds it") from error
    if not rows or not all(np.isfinite(values).all() for values in curves.values()):
        raise DataError(f"{file} has no lines, or values that are not finite; `dvc repro -f train` rebuilds it")
    return curves


def _versions(trainings: Path, weights_sha256: str) -> dict[str, str]:
    """The versions that a finished training on this machine wrote beside its checkpoints."""
    for file in sorted(trainings.glob("*/finished")):
        try:
            finished = documents.read_json(file)
            if finished["weights_sha256"] == weights_sha256:
                return dict(finished["versions"])
        except (PerennialError, *UNREADABLE):
            continue
    return {}


def _seconds(folder: Path) -> dict[str, float]:
    """The durations of stages, slowest first."""
    seconds = {}
    for stage in STAGES:
        try:
            seconds[stage] = float(documents.read_json(folder / f"{stage}.json")["seconds"])
        except (PerennialError, *UNREADABLE):
            continue
    return dict(sorted(seconds.items(), key=lambda took: -took[1]))


def provenance(written: Sequence[Path]) -> Provenance:
    """Provenance of the project here; `written`: the tracked files that runs write, such as dvc.lock."""
    git = Repository(Path(), {"GIT_OPTIONAL_LOCKS": "0"})
    try:
        revision = git.ask("rev-parse", "HEAD")
        # The project may be a subfolder of a repository, whose other files do not belong to it.
        differing = git.ask("diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD")
    except PerennialError:  # without git
        revision = differing = None
    changed = None if differing is None else tuple(filter(None, differing.split("\0")))
    by_runs = {file.as_posix() for file in written}
    return Provenance(
        revision=revision,
        changed=None if changed is None else tuple(file for file in changed if file not in by_runs),
        lock=files.sha256(dvc_lock.FILE) if dvc_lock.FILE.is_file() else None,
        lock_changed=None if changed is None else dvc_lock.FILE.as_posix() in changed,
        parameters=changed_parameters(),
    )


def changed_parameters() -> tuple[str, ...] | None:
    """Keys of params.yaml whose values differ from dvc.lock's; None without a valid dvc.lock."""
    try:
        now = documents.parse_yaml(Path(PARAMS).read_text(encoding="utf-8"))
        locked = dvc_lock.sections(dvc_lock.FILE.read_text(encoding="utf-8"))
        recorded = [locked[stage].get("params", {}) for stage in STAGES]
        keys = {
            name
            for each in recorded
            for section, then in each.get(PARAMS, {}).items()
            for name in _differing(then, dvc_lock.value_at(now, section), section)
        }
    except (OSError, *UNREADABLE):
        return None
    return tuple(sorted(keys))


def _differing(then: object, now: object, name: str) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in then.keys() | now.keys():
            yield from _differing(then.get(key), now.get(key), f"{name}.{key}")
    elif then != now:
        yield name
