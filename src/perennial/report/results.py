"""The results that a report requires: training, metrics and decision, all of the same model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perennial import files
from perennial.config.release import PathsConfig
from perennial.errors import DataError

Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    """The keys that the report reads; files hold others too."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class ValidationScores(_Part):
    """Scores on validation."""

    step: int
    accuracy: Share


class Training(_Part):
    """Record of a training."""

    stopped_by: str
    epoch: int
    step: int
    kept: int  # step whose weights are the run's
    evaluations: list[ValidationScores]
    weights_sha256: str

    @property
    def accuracy(self) -> float:
        """Validation accuracy of the kept weights, 0..1."""
        return {each.step: each.accuracy for each in self.evaluations}[self.kept]


class Interval(_Part):
    """The ends of a confidence interval, 0..1 for shares."""

    low: float
    high: float


class ClassScores(_Part):
    """Scores of one class; None where they are not defined."""

    examples: int | None = None
    precision: Share | None = None
    recall: Share | None = None
    f1: Share | None = None


class Calibration(_Part):
    """Expected calibration error."""

    ece: Share | None = None


class Metrics(_Part):
    """Scores on test; those with a default are missing from older files."""

    accuracy: Share
    loss: float
    data: str  # digest of the manifest
    model: str  # digest of the weights
    examples: int | None = None
    recall_at_5: Share | None = None
    per_class: dict[str, ClassScores] = {}
    calibration: Calibration = Calibration()
    confidence_level: Share | None = None
    intervals: dict[str, Interval] = {}


class Candidate(_Part):
    """The model that was decided on."""

    data: str
    model: str


class Champion(_Part):
    """The model in use."""

    accuracy: Share


class Decision(_Part):
    """Whether the model replaces the one in use, and why."""

    promote: bool
    reasons: list[str]
    candidate: Candidate
    champion: Champion | None = None


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """Results of a run, all of the same model and data."""

    training: Training
    metrics: Metrics
    decision: Decision


Read = TypeVar("Read", bound=_Part)


def read_results(paths: PathsConfig) -> RunResults:
    """Read the results of the last run.

    Raises:
        DataError: one is missing or incomplete, or they are not all of the same model and data.
    """
    for file in (paths.training, paths.metrics, paths.decision):
        if not file.is_file():
            raise DataError(f"{file} does not exist; `dvc repro` makes it")
    training, metrics = _read(paths.training, Training, "train"), _read(paths.metrics, Metrics, "evaluate")
    decision = _read(paths.decision, Decision, "gate")
    if training.weights_sha256 != metrics.model:
        raise DataError(
            f"{paths.metrics} has the scores of model {metrics.model}, but {paths.training} is of model "
            f"{training.weights_sha256}; nothing was written; `dvc repro evaluate` scores that one"
        )
    judged = decision.candidate
    if (judged.model, judged.data) != (metrics.model, metrics.data):
        raise DataError(
            f"{paths.decision} decides on model {judged.model} and data {judged.data}, {paths.metrics} has the "
            f"scores of model {metrics.model} on data {metrics.data}; nothing was written; "
            "`dvc repro gate` decides on those"
        )
    if training.kept not in {each.step for each in training.evaluations}:
        raise DataError(
            f"{paths.training}: evaluations has no step {training.kept}, which kept names; "
            "`dvc repro -f train` makes it again"
        )
    return RunResults(training=training, metrics=metrics, decision=decision)


def _read(file: Path, kind: type[Read], stage: str) -> Read:
    """A result; errors name its keys."""
    try:
        return kind.model_validate(files.read_json(file))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise DataError(f"{file}: {problems}; `dvc repro -f {stage}` makes it again") from error
