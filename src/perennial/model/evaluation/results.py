"""Schemas of a run's results: training record, metrics and decision, all of one model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticKnownError

from perennial.base.choices import SCORE_NAMES, Task
from perennial.base.config.paths import Paths
from perennial.base.documents import JsonFile, read_checked
from perennial.base.dvc import dvc_lock
from perennial.base.errors import DataError, QualityError, listed

SHOWN = 3  # differences in a message
MAIN = "map", "map_macro"  # main scores of several labels an image
Share = Annotated[float, Field(ge=0, le=1)]


def _or_precision(score: float | None, info: ValidationInfo) -> float | None:
    """Require a score of one label an image, unless there is the average precision of several."""
    if score is None and all(info.data.get(name) is None for name in MAIN):
        raise PydanticKnownError("missing")
    return score


OfOneLabel = Annotated[Share | None, AfterValidator(_or_precision), Field(validate_default=True)]


class Scored(JsonFile):
    """Scores of one label an image, or of several."""

    @property
    def task(self) -> Task:
        """Which scores there are."""
        return "multiclass" if getattr(self, "accuracy", None) is not None else "multilabel"

    @property
    def score(self) -> float:
        """The main score: the accuracy, or the macro mean average precision."""
        found = (getattr(self, name, None) for name in ("accuracy", *MAIN))
        return next(float(value) for value in found if value is not None)

    @property
    def score_name(self) -> str:
        """The name of the main score for people."""
        return SCORE_NAMES[self.task]


class ValidationScores(Scored):
    """Scores on the validation split."""

    step: int
    map: Share | None = None  # of several labels an image
    accuracy: OfOneLabel = None


class TrainingRecord(JsonFile):
    """Record of a training."""

    stopped_by: str
    epoch: int
    step: int
    kept: int  # step whose weights are the run's
    evaluations: list[ValidationScores]  # none without a validation split
    weights_sha256: str
    inputs: dict[str, Any] | None = None  # parameters and code, in the form of dvc.lock
    teacher: str | None = None  # the version that `train.teacher` meant; None: there was none

    @property
    def score(self) -> float | None:
        """The main validation score of the kept weights, 0..1; None without a validation split."""
        return {each.step: each.score for each in self.evaluations}[self.kept] if self.evaluations else None


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
    # Of several labels an image:
    average_precision: Share | None = Field(default=None, exclude_if=lambda value: value is None)
    threshold: Share | None = Field(default=None, exclude_if=lambda value: value is None)


class SliceMetrics(JsonFile):
    """The accuracy on a slice, of several labels an image the share of exact matches, with its interval."""

    examples: int
    accuracy: Share
    low: Share
    high: Share


class Calibration(JsonFile):
    """Expected calibration error, and the temperature that the model was calibrated with."""

    ece: Share
    ece_before: Share | None = Field(default=None, exclude_if=lambda value: value is None)
    temperature: float | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)


class AnsweredCounts(JsonFile):
    """What becomes of examples of a model that abstains."""

    examples: int
    answered: int
    wrong: int  # of those answered


class AbstentionMetrics(AnsweredCounts):
    """To which images a model says unknown, and what that does on the test split."""

    max_error: Share  # of the answers
    threshold: Share | None  # confidence from which it answers; None: from none
    coverage: Share  # share of the examples that is answered
    error: Share | None  # share of the answers that is wrong; None without any
    validation: AnsweredCounts | None = None  # on which the threshold was chosen


class UnbiasedScore(JsonFile):
    """The score of a champion on test examples that played no part in choosing it, with its 95 % interval."""

    examples: int
    correct: int
    accuracy: Share | None = None  # None of too few examples
    low: Share | None = None
    high: Share | None = None


class MainMetrics(Scored):
    """The metrics on the test split that the gate decides on."""

    map_macro: Share | None = None  # of several labels an image
    accuracy: OfOneLabel = None
    loss: float
    examples: int
    data: str  # digest of the manifest
    model: str  # digest of the weights
    abstention: AbstentionMetrics | None = None  # None: it answers every image


class Metrics(MainMetrics):
    """All metrics on the test split."""

    recall_at_5: OfOneLabel = None
    map_micro: Share | None = None  # of several labels, as are the next ones
    f1_macro: Share | None = None
    exact_match: Share | None = None  # share of the images with exactly their labels
    thresholds: dict[str, Share] | None = None  # by class
    intervals: dict[str, Interval]  # of accuracy, loss and recall_at_5, or of map_macro, exact_match and loss
    confidence_level: Share
    calibration: Calibration
    per_class: dict[str, ClassMetrics]
    audit: UnbiasedScore | None = None  # on examples that no decision reads
    slices: dict[str, dict[str, SliceMetrics]] = Field(default_factory=dict)  # by column and value


class CandidateRecord(JsonFile):
    """The model that the gate decided on."""

    accuracy: Share | None = None  # of one label an image
    map: Share | None = None  # mean average precision of several
    loss: float | None = None
    examples: int | None = None  # of the test split
    data: str  # digest of the manifest
    model: str  # digest of the weights
    split_digest: str | None = None  # of the test examples
    model_bytes: int | None = None  # of the export
    calibration_error: Share | None = None
    latency_ms: float | None = None  # median for one image; only with gate.max_latency_ms


class ChampionRecord(JsonFile):
    """The model in use, with its scores on the same test examples; None if it cannot classify them."""

    version: str
    commit: str | None = None
    model: str | None = None
    model_bytes: int | None = None
    accuracy: Share | None = None  # as of the candidate
    map: Share | None = None
    loss: float | None = None
    calibration_error: Share | None = None
    unbiased: UnbiasedScore | None = None


def score_fact(model: Scored | CandidateRecord | ChampionRecord | None) -> dict[str, float | None]:
    """The main score as a fact of a version or a run: `map` of several labels an image, or `accuracy`."""
    several = next((score for name in MAIN if (score := getattr(model, name, None)) is not None), None)
    return {"accuracy": getattr(model, "accuracy", None)} if several is None else {"map": several}


def named_score(found: Mapping[str, Any]) -> tuple[str, float | None]:
    """The name of the main score for people and its value, from facts of a version, a run or a decision."""
    several = "map" in found and found.get("accuracy") is None
    return SCORE_NAMES["multilabel" if several else "multiclass"], found.get("map" if several else "accuracy")


def scored_text(found: Mapping[str, Any], *, short: bool = False) -> str:
    """The main score with its name, `accuracy 0.9731` (`short`: `0.9731`, `mAP 0.7120`); empty without one."""
    name, score = named_score(found)
    if score is None:
        return ""
    return f"{score:.4f}" if short and found.get("map") is None else f"{name} {score:.4f}"


class Check(JsonFile):
    """The result of one rule of the gate."""

    name: str  # of the option in `gate`, or of the rule
    value: int | float | None = None
    limit: int | float | None = None
    passed: bool


class Decision(JsonFile):
    """The decision of the gate: whether the model replaces the one in use, and why."""

    promote: bool
    reasons: list[str]  # why it was rejected; if it was not, every rule that it passed
    candidate: CandidateRecord
    champion: ChampionRecord | None = None
    checks: list[Check] = Field(default_factory=list)
    comparison: dict[str, Any] | None = None  # with the champion
    budget: dict[str, int | float] | None = None  # with gate.false_share, before this comparison, and its level

    @property
    def verdict(self) -> str:
        """The decision in words. A model that passed the gate is no champion until it is promoted."""
        return "passed the gate" if self.promote else "rejected"

    def as_json(self) -> dict[str, Any]:
        """The content of the file, with the fields that it has."""
        return self.model_dump(exclude_unset=True)


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """Results of a run, all of the same model and data."""

    training: TrainingRecord
    metrics: Metrics
    decision: Decision


def require_recorded(file: Path) -> None:
    """Check that dvc.lock has the parameters and the code that a record says were used."""
    stages, content = dvc_lock.here(), file.read_bytes() if file.is_file() else b""
    wrong = dvc_lock.contradictions(stages, file, content)
    if not wrong:
        return
    stage = dvc_lock.maker(stages, file)
    if stage == "train":
        remedy = (
            "set it back and run `dvc repro`, which records the finished training in seconds, or run "
            "`dvc repro --force train` to train with what dvc.lock has, then `dvc repro`"
        )
    else:
        remedy = f"run `dvc repro --force --single-item {stage}`, which uses what is there now"
    raise QualityError(
        f"this model is recorded wrongly: {listed(wrong, SHOWN)}; it changed while {stage} ran; no version is "
        f"made of it: {remedy}"
    )


def read_results(paths: Paths) -> RunResults:
    """Read the results of the last run."""
    training = read_checked(paths.training, TrainingRecord, "`dvc repro train` makes or restores it")
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
