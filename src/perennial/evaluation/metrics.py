"""Metrics of a scored split: overall with confidence intervals, and per class."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import bootstrap
from sklearn.metrics import precision_recall_fscore_support

from perennial.config.release import EvaluateConfig
from perennial.evaluation.diagnostics import Reliability
from perennial.evaluation.scoring import ExampleScores

BOOTSTRAP_BATCH = 4_000_000  # resampled values held in memory at once


def compute(
    scores: ExampleScores, names: Sequence[str], calibration: Reliability, config: EvaluateConfig
) -> dict[str, object]:
    """Metrics as JSON values: overall with confidence intervals, per class, and calibration."""
    return {
        "accuracy": scores.accuracy,
        "loss": scores.loss,
        "recall_at_5": scores.recall_at_5,
        "examples": scores.examples,
        "per_class": per_class(scores, names),
        "calibration": {"ece": calibration.ece},
        "confidence_level": config.confidence_level,
        "intervals": intervals(scores, config),
    }


def per_class(scores: ExampleScores, names: Sequence[str]) -> dict[str, dict[str, float | int | None]]:
    """Examples, precision, recall and F1 of each class; None where the denominator is 0."""
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


def intervals(scores: ExampleScores, config: EvaluateConfig) -> dict[str, dict[str, float]]:
    """Bootstrap percentile intervals of accuracy, loss and top-5 accuracy; deterministic.

    Empty without resamples, and for fewer than two examples.
    """
    if not config.bootstrap_resamples or scores.examples < 2:
        return {}
    values = {
        "accuracy": scores.predicted == scores.labels,
        "loss": scores.losses,
        "recall_at_5": scores.within_top,
    }
    found = {}
    for name, each in values.items():
        low, high = bootstrap(
            (each.astype(np.float64),),
            np.mean,
            n_resamples=config.bootstrap_resamples,
            batch=max(1, BOOTSTRAP_BATCH // scores.examples),
            confidence_level=config.confidence_level,
            method="percentile",  # the other methods give NaN where every prediction is correct
            rng=np.random.default_rng(config.seed),
        ).confidence_interval
        found[name] = {"low": float(low), "high": float(high)}
    return found


def _defined(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)
