"""Schemas of a run's results for later stages: training record, metrics and decision, all of one model."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from perennial.config.release import PathsConfig
from perennial.documents import JsonFile, read_checked
from perennial.errors import DataError

Share = Annotated[float, Field(ge=0, le=1)]


class ValidationScores(JsonFile):
    """Scores on the validation split."""

    step: int
    accuracy: Share


class Training(JsonFile):
    """Record of a training."""

    stopped_by: str
    epoch: int
    step: int
    kept: int  # step whose weights are the run's
    evaluations: list[ValidationScores]  # none without a validation split
    weights_sha256: str

    @property
    def accuracy(self) -> float | None:
        """Validation accuracy of the kept weights, 0..1; None without a validation split."""
        return {each.step: each.accuracy for each in self.evaluations}[self.kept] if self.evaluations else None


class Interval(JsonFile):
    """A confidence interval."""

    low: float
    high: float


class ClassMetrics(JsonFile):
    """Metrics of one class; None where undefined."""

    examples: int
    precision: Share | None
    recall: Share | None
    f1: Share | None


class Calibration(JsonFile):
    """Expected calibration error."""

    ece: Share


class Metrics(JsonFile):
    """Metrics on the test split."""

    accuracy: Share
    loss: float
    recall_at_5: Share
    examples: int
    intervals: dict[str, Interval]  # of the first three, or empty
    confidence_level: Share
    calibration: Calibration
    per_class: dict[str, ClassMetrics]
    data: str  # digest of the manifest
    model: str  # digest of the weights


class Candidate(JsonFile):
    """The model that the gate decided on."""

    data: str
    model: str
    accuracy: Share | None = None
    loss: float | None = None
    calibration_error: Share | None = None
    model_bytes: int | None = None  # of the export


class Champion(JsonFile):
    """The model in use, on the same test examples."""

    version: str
    accuracy: Share | None  # None, like the next two, if it cannot classify them
    loss: float | None = None
    calibration_error: Share | None = None
    model_bytes: int | None = None


class Check(JsonFile):
    """A rule of the gate."""

    name: str
    value: float | None
    limit: float | None
    passed: bool


class Decision(JsonFile):
    """Whether the model replaces the one in use, and why."""

    promote: bool
    reasons: list[str]
    candidate: Candidate
    champion: Champion | None
    checks: list[Check] = Field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """Results of a run, all of the same model and data."""

    training: Training
    metrics: Metrics
    decision: Decision


def read_results(paths: PathsConfig) -> RunResults:
    """Read the results of the last run.

    Raises:
        DataError: a file is missing or incomplete, or they are of different models or data.
    """
    training = read_checked(paths.training, Training, "`dvc repro train` makes or restores it")
    metrics = read_checked(paths.metrics, Metrics, "`dvc repro evaluate` makes or restores it")
    decision = read_checked(paths.decision, Decision, "`dvc repro gate` makes or restores it")
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
    if training.evaluations and training.kept not in {each.step for each in training.evaluations}:
        raise DataError(
            f"{paths.training}: evaluations has no step {training.kept}, which kept names; "
            "`dvc repro -f train` rebuilds it"
        )
    return RunResults(training=training, metrics=metrics, decision=decision)
