"""All that a report tells, from the files that the stages left; what is not there is said, not guessed."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from perennial import files
from perennial.config import Config
from perennial.errors import DataError, PerennialError
from perennial.evaluation.calibration import Reliability
from perennial.records import manifest
from perennial.records.manifest import Manifest
from perennial.reporting import answers
from perennial.reporting.answers import Answers
from perennial.reporting.figures import Matrix, Table
from perennial.reporting.outcome import Decision, Metrics, Training, outcome
from perennial.reporting.provenance import Provenance, provenance
from perennial.training.history import TRAINING_CURVE, VALIDATION_CURVE
from perennial.validation import report as content

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What the validation of the data found."""

    kinds: list[tuple[str, str, int]]  # code, severity and number of problems
    facts: list[tuple[str, list[tuple[str, str]]]]  # title and lines of name and value


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What is known of a run."""

    data: Manifest
    training: Training
    metrics: Metrics
    decision: Decision
    validation: Validation | None
    training_curve: Table | None
    validation_curve: Table | None
    answers: Answers | None
    matrix: Matrix | None
    reliability: Reliability | None
    seconds: Mapping[str, float]  # by stage, of those that ran on this machine
    provenance: Provenance
    missing: Mapping[str, str]  # by part, why it is not there


def gather(config: Config, stages: Sequence[str]) -> Gathered:
    """Reads what the stages left.

    Raises:
        DataError: a result that a report cannot do without is not there, is damaged or of another model.
    """
    paths, missing = config.paths, _Missing()
    ended = outcome(paths)
    data, digest, curves = manifest.load(paths.records), manifest.digest(paths.records), paths.curves
    bins = config.evaluate.calibration_bins
    given = missing.or_read(
        "answers", paths.predictions, lambda file: answers.read(file, ended.metrics, bins=bins)
    )
    return Gathered(
        data=data,
        training=ended.training,
        metrics=ended.metrics,
        decision=ended.decision,
        validation=missing.or_read("validation", paths.validation, lambda file: _validation(file, digest)),
        training_curve=missing.or_read("training_curve", curves / TRAINING_CURVE, _training_curve),
        validation_curve=missing.or_read("validation_curve", curves / VALIDATION_CURVE, _validation_curve),
        answers=given,
        matrix=answers.matrix(given) if given else None,
        reliability=given.reliability if given else None,
        seconds=_seconds(paths.work / "timings", stages),
        provenance=provenance(stages, paths.baseline),
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


def _validation(file: Path, digest: str) -> Validation:
    """What the validation report tells, if it is of these data."""
    if not file.is_file():
        raise DataError(f"{file} does not exist; `dvc repro validate` makes it")
    found = content.mapping(files.read_json(file))
    statistics = content.mapping(found.get("statistics"))
    if statistics.get("manifest") != digest:
        raise DataError(f"{file} is of other data than these records; `dvc repro validate` makes it anew")
    return Validation(kinds=content.by_code(found), facts=list(_facts(statistics)))


def _facts(statistics: Mapping[str, object]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Lists of facts about the images, each with its title."""
    for title, lines in (
        ("Images", content.facts(statistics)),
        ("Duplicates", content.flat(statistics.get("duplicates"))),
        ("Drift since the version before", content.flat(statistics.get("drift"))),
    ):
        if listed := list(lines):
            yield title, listed


def _training_curve(file: Path) -> Table:
    return _curve(file, ("step", "loss", "learning_rate"))


def _validation_curve(file: Path) -> Table:
    return _curve(file, ("step", "loss", "accuracy"))


def _curve(file: Path, columns: Sequence[str]) -> Table:
    """Some columns of a table of numbers."""
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; `dvc repro train` makes it") from error
    except csv.Error as error:
        raise DataError(f"{file} is no table: {error}; `dvc repro -f train` makes it anew") from error
    if not rows:
        raise DataError(f"{file} has no lines yet")
    if absent := [name for name in columns if name not in rows[0]]:
        raise DataError(f"{file} has no column {', '.join(absent)}; `dvc repro -f train` makes it anew")
    return {name: np.array([float(row[name]) for row in rows]) for name in columns}


def _seconds(folder: Path, stages: Sequence[str]) -> dict[str, float]:
    """How long stages took, the slowest first."""
    found = {}
    for stage in stages:
        try:
            found[stage] = float(files.read_json(folder / f"{stage}.json")["seconds"])
        except (PerennialError, ValueError, LookupError, TypeError):
            continue
    return dict(sorted(found.items(), key=lambda took: -took[1]))
