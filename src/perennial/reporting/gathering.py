"""All that a report tells, from the files that the stages left; what is not there is said, not guessed."""

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from perennial import files
from perennial.config import Config
from perennial.errors import DataError, PerennialError
from perennial.evaluation import predictions
from perennial.evaluation.predictions import Predictions
from perennial.records import manifest
from perennial.records.manifest import Manifest
from perennial.reporting.figures import Matrix, Table
from perennial.reporting.provenance import Provenance, provenance
from perennial.training.history import TRAINING_CURVE, VALIDATION_CURVE
from perennial.validation import content

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What is known of a run."""

    data: Manifest
    training: Mapping[str, Any]
    metrics: Mapping[str, Any]
    decision: Mapping[str, Any]
    validation: Mapping[str, object] | None
    training_curve: Table | None
    validation_curve: Table | None
    matrix: Matrix | None
    reliability: Table | None
    answers: Predictions | None
    seconds: Mapping[str, float]  # by stage, of those that ran on this machine
    provenance: Provenance
    missing: Mapping[str, str]  # by part, why it is not there


def gather(config: Config, stages: Sequence[str]) -> Gathered:
    """Reads what the stages left.

    Raises:
        DataError: a stage that a report cannot do without has not run yet.
    """
    paths, missing = config.paths, _Missing()
    for file in (paths.training, paths.metrics, paths.decision):
        if not file.is_file():
            raise DataError(f"{file} does not exist; `dvc repro` makes it")
    data, metrics = manifest.load(paths.records), files.read_json(paths.metrics)
    digest, curves = manifest.digest(paths.records), paths.curves
    return Gathered(
        data=data,
        training=files.read_json(paths.training),
        metrics=metrics,
        decision=files.read_json(paths.decision),
        validation=missing.or_read("validation", paths.validation, lambda file: _validation(file, digest)),
        training_curve=missing.or_read("training_curve", curves / TRAINING_CURVE, _curve),
        validation_curve=missing.or_read("validation_curve", curves / VALIDATION_CURVE, _curve),
        matrix=missing.or_read("matrix", paths.confusion, lambda file: _matrix(file, data.classes)),
        reliability=missing.or_read("reliability", paths.reliability, lambda file: _table(file, "evaluate")),
        answers=missing.or_read("answers", paths.predictions, lambda file: _answers(file, metrics)),
        seconds=_seconds(paths.work / "timings", stages),
        provenance=provenance(paths.baseline),
        missing=missing.why,
    )


class _Missing:
    """Why parts are not there."""

    def __init__(self) -> None:
        self.why: dict[str, str] = {}

    def or_read(self, part: str, file: Path, read: Callable[[Path], Part]) -> Part | None:
        """What `read` gives of the file, or None, with the reason kept."""
        try:
            return read(file)
        except PerennialError as error:
            self.why[part] = str(error)
        except (OSError, ValueError, LookupError, TypeError) as error:
            self.why[part] = f"{file} cannot be read: {type(error).__name__}: {error}"
        return None


def _validation(file: Path, digest: str) -> Mapping[str, object]:
    """The validation report, if it is of these data."""
    if not file.is_file():
        raise DataError(f"{file} does not exist; `dvc repro validate` makes it")
    found = content.mapping(files.read_json(file))
    if content.mapping(found.get("statistics")).get("manifest") != digest:
        raise DataError(f"{file} is of other data than these records; `dvc repro validate` makes it anew")
    return found


def _answers(file: Path, metrics: Mapping[str, Any]) -> Predictions:
    """The scored model's answers, if they are of the run whose scores these are."""
    found = predictions.read(file)
    if (found.data, found.model) != (metrics.get("data"), metrics.get("model")):
        raise DataError(
            f"{file} is of another model or other data than the scores; `dvc repro evaluate` makes it"
        )
    if found.probabilities.shape != (len(found.labels), len(found.classes)) or not len(found.labels):
        raise DataError(f"{file} holds no answers to tell of; `dvc repro -f evaluate` makes it anew")
    return found


def _matrix(file: Path, classes: Sequence[str]) -> Matrix:
    """Examples by class and prediction; of many classes some share a name that is none of theirs."""
    pairs = Counter((row["actual"], row["predicted"]) for row in _rows(file, "evaluate"))
    seen = {name for pair in pairs for name in pair}
    names = (*(name for name in classes if name in seen), *sorted(seen - set(classes)))
    places = {name: place for place, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for (actual, predicted), count in pairs.items():
        counts[places[actual], places[predicted]] = count
    return Matrix(counts=counts, names=names)


def _curve(file: Path) -> Table:
    return _table(file, "train")


def _table(file: Path, stage: str) -> Table:
    """The columns of a table of numbers."""
    rows = _rows(file, stage)
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def _rows(file: Path, stage: str) -> list[dict[str, str]]:
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; `dvc repro {stage}` makes it") from error
    if not rows:
        raise DataError(f"{file} has no lines yet")
    return rows


def _seconds(folder: Path, stages: Sequence[str]) -> dict[str, float]:
    """How long stages took, the slowest first."""
    found = {}
    for stage in stages:
        try:
            found[stage] = float(files.read_json(folder / f"{stage}.json")["seconds"])
        except (PerennialError, ValueError, LookupError, TypeError):
            continue
    return dict(sorted(found.items(), key=lambda took: -took[1]))
