"""All that is told of a model's scores, as numbers for a JSON file."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from perennial.config.release import EvaluateConfig
from perennial.evaluation.calibration import Reliability
from perennial.evaluation.intervals import intervals
from perennial.evaluation.scores import Scores

PerClass = dict[str, dict[str, float | int | None]]


def metrics(
    scores: Scores, names: Sequence[str], reliability: Reliability, config: EvaluateConfig
) -> dict[str, object]:
    """Scores with their intervals, those of each class, and calibration."""
    return {
        "accuracy": scores.accuracy,
        "loss": scores.loss,
        "recall_at_5": scores.recall_at_5,
        "examples": scores.examples,
        "per_class": per_class(scores, names),
        "calibration": {"ece": reliability.ece},
        "confidence_level": config.confidence_level,
        "intervals": intervals(scores, config),
    }


def confusion(scores: Scores) -> NDArray[np.int64]:
    """Examples by label and prediction, [classes, classes]."""
    counts: NDArray[np.int64] = confusion_matrix(scores.labels, scores.predicted, labels=range(scores.classes))
    return counts


def per_class(scores: Scores, names: Sequence[str]) -> PerClass:
    """For each class its examples, precision, recall and F1; None where there is nothing to divide by."""
    columns = precision_recall_fscore_support(
        scores.labels, scores.predicted, labels=range(scores.classes), zero_division=np.nan
    )
    return {
        name: {
            "examples": int(examples),
            "precision": _defined(precision),
            "recall": _defined(recall),
            "f1": _defined(f1),
        }
        for name, precision, recall, f1, examples in zip(names, *columns, strict=True)
    }


def _defined(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)
