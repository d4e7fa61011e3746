"""Collect the facts of a run from the files that its stages wrote; missing parts are named, not guessed."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy.sparse import coo_array

from perennial import files
from perennial.config import Config
from perennial.errors import DataError, PerennialError
from perennial.evaluation import diagnostics, predictions
from perennial.evaluation.diagnostics import Matrix, Reliability
from perennial.evaluation.predictions import TopPredictions
from perennial.plots import Curve
from perennial.records import manifest
from perennial.records.manifest import Manifest
from perennial.report.provenance import Provenance, provenance
from perennial.report.results import Metrics, RunResults, read_results
from perennial.training.history import TRAINING_CURVE, VALIDATION_CURVE
from perennial.validation import report as content

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Problems and statistics of the validation report."""

    kinds: list[tuple[str, str, int]]  # code, severity and number of problems
    facts: list[tuple[str, list[tuple[str, str]]]]  # title and lines of name and value


@dataclass(frozen=True, kw_only=True)
class TestPredictions:
    """Predictions on the test split and their statistics."""

    predictions: TopPredictions
    confusion: coo_array  # examples by label and prediction, [classes, classes]
    matrix: Matrix
    reliability: Reliability


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of a run; None for parts that are missing."""

    data: Manifest
    results: RunResults
    validation: Validation | None
    training_curve: Curve | None
    validation_curve: Curve | None
    test: TestPredictions | None
    seconds: Mapping[str, float]  # by stage, of those that ran on this machine
    versions: Mapping[str, str]  # of Python and packages that trained the model; empty if not known
    provenance: Provenance
    missing: Mapping[str, str]  # by part, why it is missing


def collect(config: Config, stages: Sequence[str]) -> Facts:
    """Read the files that the stages wrote.

    Raises:
        DataError: a required result is missing, damaged or of another model.
    """
    paths, missing = config.paths, _Missing()
    results = read_results(paths)
    digest, bins = manifest.digest(paths.records), config.evaluate.calibration_bins
    return Facts(
        data=manifest.load(paths.records),
        results=results,
        validation=missing.or_read("validation", paths.validation, lambda file: _validation(file, digest)),
        training_curve=missing.or_read(
            "training_curve",
            paths.curves / TRAINING_CURVE,
            lambda file: _curve(file, ("step", "loss", "learning_rate")),
        ),
        validation_curve=missing.or_read(
            "validation_curve",
            paths.curves / VALIDATION_CURVE,
            lambda file: _curve(file, ("step", "loss", "accuracy")),
        ),
        test=missing.or_read("test", paths.predictions, lambda file: _test(file, results.metrics, bins)),
        seconds=_seconds(paths.work / "timings", stages),
        versions=_versions(paths.work / "train", results.training.weights_sha256),
        provenance=provenance(Path(), stages, paths.baseline),
        missing=missing.why,
    )


@dataclass
class _Missing:
    why: dict[str, str] = field(default_factory=dict)

    def or_read(self, part: str, file: Path, read: Callable[[Path], Part]) -> Part | None:
        """Return what `read` returns, or keep the reason and return None."""
        try:
            return read(file)
        except PerennialError as error:
            self.why[part] = str(error)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            self.why[part] = f"{file} cannot be read: {type(error).__name__}: {error}"
        return None


def _test(file: Path, scores: Metrics, bins: int) -> TestPredictions:
    found = predictions.read_top(file)
    if (found.data, found.model) != (scores.data, scores.model):
        raise DataError(
            f"{file} is of another model or other data than the metrics; `dvc repro evaluate` makes it"
        )
    confusion = diagnostics.confusion(found.labels, found.predicted, len(found.classes))
    return TestPredictions(
        predictions=found,
        confusion=confusion,
        matrix=diagnostics.matrix(confusion, found.classes),
        reliability=diagnostics.reliability(found.p, found.predicted == found.labels, bins=bins),
    )


def _validation(file: Path, digest: str) -> Validation:
    if not file.is_file():
        raise DataError(f"{file} does not exist; `dvc repro validate` makes it")
    found = files.read_json(file)
    if found["statistics"]["manifest"] != digest:
        raise DataError(f"{file} is of other data than these records; `dvc repro validate` makes it again")
    return Validation(kinds=content.by_code(found), facts=content.titled(found["statistics"]))


def _curve(file: Path, columns: Sequence[str]) -> Curve:
    """Columns of numbers of a CSV file."""
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; `dvc repro train` makes it") from error
    except csv.Error as error:
        raise DataError(f"{file} is not valid CSV: {error}; `dvc repro -f train` makes it again") from error
    if not rows:
        raise DataError(f"{file} has no lines yet")
    if absent := [name for name in columns if name not in rows[0]]:
        raise DataError(f"{file} has no column {', '.join(absent)}; `dvc repro -f train` makes it again")
    return {name: np.array([float(row[name]) for row in rows]) for name in columns}


def _versions(trainings: Path, weights_sha256: str) -> dict[str, str]:
    """The versions that a training on this machine wrote beside its checkpoints when it finished."""
    for file in sorted(trainings.glob("*/finished")):
        try:
            finished = files.read_json(file)
            if finished["weights_sha256"] == weights_sha256:
                return dict(finished["versions"])
        except (PerennialError, ValueError, LookupError, TypeError):
            continue
    return {}


def _seconds(folder: Path, stages: Sequence[str]) -> dict[str, float]:
    """How long stages took, the slowest first."""
    found = {}
    for stage in stages:
        try:
            found[stage] = float(files.read_json(folder / f"{stage}.json")["seconds"])
        except (PerennialError, ValueError, LookupError, TypeError):
            continue
    return dict(sorted(found.items(), key=lambda took: -took[1]))
