"""Metrics of a scored split: overall with confidence intervals, and per class."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from perennial.base.config.release import EvaluateConfig
from perennial.model.evaluation import intervals
from perennial.model.evaluation import slices as slicing
from perennial.model.evaluation.diagnostics import Reliability
from perennial.model.evaluation.scoring import ExampleScores
from perennial.model.evaluation.slices import Slices


def compute(
    scores: ExampleScores,
    names: Sequence[str],
    calibration: Reliability,
    config: EvaluateConfig,
    slices: Sequence[Slices] = (),
    temperature: Mapping[str, float] | None = None,
) -> dict[str, object]:
    """Metrics as JSON values; `temperature`: what `SplitResult.calibration` returns."""
    correct, level = scores.predicted == scores.labels, config.confidence_level
    return {
        **({"slices": slicing.scores(slices, correct, level)} if slices else {}),
        "accuracy": scores.accuracy,
        "loss": scores.loss,
        "recall_at_5": scores.recall_at_5,
        "examples": scores.examples,
        "per_class": per_class(scores, names),
        "calibration": {"ece": calibration.ece, **(temperature or {})},
        "confidence_level": config.confidence_level,
        "intervals": scored_intervals(scores, config.confidence_level),
    }


def per_class(scores: ExampleScores, names: Sequence[str]) -> dict[str, dict[str, float | int | None]]:
    """Examples, precision, recall and F1 of each class; None where the denominator is 0."""
    right = scores.labels[scores.predicted == scores.labels]
    counts = (
        np.bincount(found, minlength=scores.classes).tolist()
        for found in (right, scores.predicted, scores.labels)
    )
    return {
        name: {
            "examples": examples,
            "precision": _share(hits, predicted),
            "recall": _share(hits, examples),
            "f1": _share(2 * hits, predicted + examples),
        }
        for name, hits, predicted, examples in zip(names, *counts, strict=True)
    }


def scored_intervals(scores: ExampleScores, level: float) -> dict[str, dict[str, float]]:
    """Confidence intervals of accuracy, loss and top-5 accuracy."""
    right, within = int((scores.predicted == scores.labels).sum()), int(scores.within_top.sum())
    found = {
        "accuracy": intervals.share(right, scores.examples, level),
        # A model that knows nothing has the logarithm of the number of classes as loss of each example.
        "loss": intervals.mean(scores.losses, math.log(scores.classes), level),
        "recall_at_5": intervals.share(within, scores.examples, level),
    }
    return {name: {"low": low, "high": high} for name, (low, high) in found.items()}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
