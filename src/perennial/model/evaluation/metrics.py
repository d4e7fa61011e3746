"""Metrics of a scored split: overall with confidence intervals, and per class."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.base.config.release import EvaluateConfig
from perennial.model.evaluation import average_precision, intervals
from perennial.model.evaluation.predictions import Predictions, slice_scores
from perennial.model.evaluation.scoring import ExampleScores
from perennial.model.evaluation.split import SplitResult


def of_result(result: SplitResult, config: EvaluateConfig) -> dict[str, Any]:
    """Metrics of an evaluated model as JSON values, on the examples that decisions read."""
    judged, scores, level = result.predictions.judged(), result.scores, config.confidence_level
    if isinstance(scores, ExampleScores):
        correct, found = scores.predicted == scores.labels, of_classes(scores, judged.classes, level)
    else:
        correct, found = judged.right, of_labels(judged, scores.losses, level)
    ece = {"ece": result.reliability(config.calibration_bins).ece}
    return {
        **({"slices": slice_scores(judged.slices, correct, level)} if judged.slices else {}),
        **found,
        "loss": scores.loss,
        "examples": scores.examples,
        "calibration": {**ece, **result.calibration(config.calibration_bins)},
        "confidence_level": level,
    }


def of_classes(scores: ExampleScores, names: Sequence[str], level: float) -> dict[str, Any]:
    """Metrics of one label an image as JSON values, besides the loss."""
    return {
        "accuracy": scores.accuracy,
        "recall_at_5": scores.recall_at_5,
        "per_class": per_class(scores, names),
        "intervals": scored_intervals(scores, level),
    }


def of_labels(predictions: Predictions, losses: NDArray[np.float64], level: float) -> dict[str, Any]:
    """Metrics of several labels an image as JSON values, besides the loss; `losses`: of each example, [N].

    The macro averages are over the classes that have the score.
    """
    labels, probabilities, exact = predictions.labels, predictions.probabilities, predictions.right
    classes = _labels_per_class(predictions)
    found = [each["average_precision"] for each in classes.values()]
    f1 = [each["f1"] for each in classes.values() if each["f1"] is not None]
    ends = {
        "map_macro": average_precision.interval(labels, probabilities, level),
        "exact_match": intervals.share(int(exact.sum()), len(exact), level),
        # A model that knows nothing has the logarithm of 2 as loss of each label.
        "loss": intervals.mean(losses, math.log(2), level),
    }
    return {
        "map_macro": average_precision.macro(found),
        "map_micro": average_precision.average_precision(labels.ravel(), probabilities.ravel()) or 0.0,
        "f1_macro": sum(f1) / len(f1) if f1 else 0.0,
        "exact_match": float(exact.mean()),
        "thresholds": {name: each["threshold"] for name, each in classes.items()},
        "per_class": classes,
        "intervals": _intervals(ends),
    }


def _labels_per_class(predictions: Predictions) -> dict[str, dict[str, Any]]:
    """Scores of each class with several labels an image; None where the denominator is 0."""
    labels, predicted, applied = predictions.labels, predictions.predicted, predictions.thresholds
    counts = ((labels & predicted).sum(axis=0), predicted.sum(axis=0), labels.sum(axis=0))
    averages = average_precision.per_class(labels, predictions.probabilities)
    thresholds = [float(str(each)) for each in np.asarray(applied, np.float32)]  # 0.1, as it was chosen
    counted = zip(*(each.tolist() for each in counts), strict=True)
    return {
        name: {**_of_counts(*of_class), "average_precision": average, "threshold": threshold}
        for name, average, threshold, of_class in zip(
            predictions.classes, averages, thresholds, counted, strict=True
        )
    }


def per_class(scores: ExampleScores, names: Sequence[str]) -> dict[str, dict[str, float | int | None]]:
    """Examples, precision, recall and F1 of each class; None where the denominator is 0."""
    right = scores.labels[scores.predicted == scores.labels]
    counts = (
        np.bincount(found, minlength=scores.classes).tolist()
        for found in (right, scores.predicted, scores.labels)
    )
    return {name: _of_counts(*of_class) for name, *of_class in zip(names, *counts, strict=True)}


def scored_intervals(scores: ExampleScores, level: float) -> dict[str, dict[str, float]]:
    """Confidence intervals of accuracy, loss and top-5 accuracy."""
    right, within = int((scores.predicted == scores.labels).sum()), int(scores.within_top.sum())
    found = {
        "accuracy": intervals.share(right, scores.examples, level),
        # A model that knows nothing has the logarithm of the number of classes as loss of each example.
        "loss": intervals.mean(scores.losses, math.log(scores.classes), level),
        "recall_at_5": intervals.share(within, scores.examples, level),
    }
    return _intervals(found)


def _intervals(ends: Mapping[str, tuple[float, float]]) -> dict[str, dict[str, float]]:
    return {name: {"low": low, "high": high} for name, (low, high) in ends.items()}


def _of_counts(hits: int, predicted: int, examples: int) -> dict[str, Any]:
    return {
        "examples": examples,
        "precision": _share(hits, predicted),
        "recall": _share(hits, examples),
        "f1": _share(2 * hits, predicted + examples),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
