"""Sections of params.yaml about results: evaluation, export, gate, publishing and monitor."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from perennial.base import choices
from perennial.base.config.fields import Count, Devices, Section, kind, option, or_component


class PrecisionRule(Section):
    """Thresholds from which on labels are right at least this often, a share above 0 and below 1."""

    precision: float


def _threshold(value: Any) -> Any:
    """Check the rule for thresholds; a union would report an error of each of its types."""
    rule = isinstance(value, dict) and value.keys() == {"precision"}
    number = value["precision"] if rule else value
    known = isinstance(value, PrecisionRule) or value == "f1"
    if not known and not (type(number) in {int, float} and (0 < number < 1 if rule else 0 <= number <= 1)):
        raise ValueError("must be f1, a number from 0 to 1, or {precision: P} with P above 0 and below 1")
    return value


class EvaluateConfig(Section):
    """The evaluation on the test split."""

    batch_size: int = option(256, "examples per batch; does not change scores", ge=1, le=2**20)
    devices: Devices = option("auto", "auto, cpu:N, gpu:N or gpu:0,2; does not change scores")
    calibration_bins: int = option(15, "confidence bins of the reliability diagram and of ECE", ge=1, le=100)
    confidence_level: float = option(0.95, "confidence of all intervals", gt=0, lt=1)
    audit_fraction: float = option(0.0, "share of the test split that no decision reads; 0: none", ge=0, le=0.9)
    calibrate: bool = option(False, "fit a temperature on validation, so that 0.9 is right 9 times in 10")
    max_error: float | None = option(
        None, "share of wrong answers; null: no image gets unknown", ge=0.0001, le=0.5
    )
    threshold: Annotated[
        Literal["f1"] | float | PrecisionRule,
        BeforeValidator(_threshold),
        kind("f1, a number, or {precision: 0.9}"),
    ] = option("f1", "multilabel: probability of a label; best F1 or least for a precision on validation")


class CardConfig(Section):
    """Entries of the model card that only a person can write."""

    licence: str | None = option(None, "licence of the model, such as Apache-2.0; null: not stated")
    intended_use: str | None = option(None, "what the model is for; null: not stated")


class ExportConfig(Section):
    """What is exported besides the SavedModel."""

    formats: list[Annotated[choices.Format | str, or_component(choices.Format)]] = option(
        [], "further formats, in assets.extra; or components.MODULE:NAME"
    )
    mirror: bool = option(False, "average the logits of each image and of its mirror image, also in evaluate")
    representative_examples: Count = option(500, "tflite_int8: training examples that calibrate it")
    reference_examples: int = option(2000, "validation examples to compare traffic with; 0: none", ge=0)
    card: CardConfig = Field(default_factory=CardConfig)


class GateConfig(Section):
    """The limits that a model must keep to be promoted."""

    min_accuracy: float | None = option(0.97, "test accuracy; null: above that of always one class", ge=0, le=1)
    min_map: float | None = option(None, "multilabel: test mAP; null: above that of equal answers", ge=0, le=1)
    min_class_recall: float | None = option(None, "minimum recall of each class; null: no limit", ge=0, le=1)
    max_calibration_error: float | None = option(None, "expected calibration error; null: no limit", ge=0, le=1)
    max_model_mb: float | None = option(None, "maximum size of the export, in MB; null: no limit", gt=0)
    max_latency_ms: float | None = option(None, "for one image on the CPU; null: not measured", gt=0)
    min_gain: float = option(0.005, "minimum gain in accuracy or mAP over the champion", ge=0, le=1)
    significance: float | None = option(
        0.002, "p-value of that gain (exact McNemar or permutation test); null: none", gt=0, lt=1
    )
    false_share: float | None = option(
        None, "share of promotions without a real gain, in place of significance; null: none", gt=0, lt=1
    )
    comparisons_a_year: Count = option(365, "comparisons that share the budget of false_share")
    max_class_drop: float | None = option(
        0.1, "of a class's recall or AP, beyond chance; null: no limit", ge=0, le=1
    )
    max_slice_drop: float | None = option(
        0.05, "the same for examples that are alike in a column of labels", ge=0, le=1
    )
    traffic: Literal["protects", "decides"] | None = option(
        None, "random labels of traffic in test: limit drops, or decide; null: as other images"
    )
    max_negative_flips: float | None = option(
        None, "share right before and wrong now, beyond chance; null: no limit", ge=0, le=1
    )
    approval: bool = option(False, "a person must approve a model that passes the gate")
    approval_hours: float = option(72.0, "hours to wait for approval", gt=0, le=8760)

    @model_validator(mode="after")
    def _traffic_has_limits(self) -> Self:
        level = self.significance if self.false_share is None else self.false_share
        limits = {"max_slice_drop": self.max_slice_drop, "significance or gate.false_share": level}
        if self.traffic and None in limits.values():
            needed = next(name for name, limit in limits.items() if limit is None)
            raise ValueError(f"gate.traffic {self.traffic} needs gate.{needed}, got null; set a number")
        return self


class PublishConfig(Section):
    """Where models that passed the gate are published."""

    url: str | None = option(None, "folder of versions, or s3:// URL; null: none")
    dvc_remote: str | None = option(None, "DVC remote whose options, such as sse, url uses, too; null: none")


class RecordConfig(Section):
    """How runs and versions are recorded in git."""

    artifact: str = option(
        "classifier",
        "name of the model in the registry and in dvc.yaml",
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])$",
    )
    remote: str | None = option(
        "origin", "git remote that records are pushed to; null: none", pattern=r"^[A-Za-z0-9][\w./-]*$"
    )
    branch: Literal["fast-forward", "run"] = option(
        "fast-forward", "fast-forward: a promoted run moves the branch; run: each run gets a branch run/ID"
    )
    git_name: str | None = option(None, "author of commits and tags; null: git's own, else perennial")
    git_email: str | None = option(None, "e-mail address of the author; null: git's own")


class MonitorConfig(Section):
    """When the flow `monitor` starts a retraining."""

    source: bool = option(True, "retrain when dataset.url differs from what the champion was trained on")
    max_age_days: float | None = option(None, "maximum age of the champion, in days; null: no rule", gt=0)
    traffic: str | None = option(None, "place of `serve --keep` to compare with validation images; null: none")
    traffic_window: int = option(200, "kept images that are compared together", ge=50, le=2000)


class LabelConfig(Section):
    """How labels of traffic are proposed."""

    images: Literal["git", "dvc"] = option(
        "git", "where images are kept; dvc: a remote, where forget reaches them"
    )
