"""The limits of the gate that apply to a candidate by itself, without a champion."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perennial.base.config.release import GateConfig
from perennial.base.errors import printable
from perennial.model.evaluation import average_precision, comparison
from perennial.model.evaluation.comparison import Scores
from perennial.model.evaluation.predictions import Predictions
from perennial.model.evaluation.results import MainMetrics
from perennial.release.gate import checks
from perennial.release.gate.checks import Judged

MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The new model and what the gate measures of it."""

    metrics: MainMetrics
    predictions: Predictions
    scores: Scores | None  # None if a prediction is not finite
    model_bytes: int  # of its export
    latency_ms: float | None  # median for one image; None if not measured
    validation: float | None = None  # main score on the validation split


def of_candidate(candidate: Candidate, limits: GateConfig) -> Iterator[Judged]:
    """Check what a candidate must have whatever its opponent; only that its predictions are finite, if not."""
    scores = candidate.scores
    if scores is None:
        yield _not_finite(candidate.predictions)
        return
    score, name = candidate.metrics.score, candidate.metrics.score_name
    rule = "min_map" if candidate.predictions.multilabel else "min_accuracy"
    if (least := getattr(limits, rule)) is not None:
        yield checks.against(rule, f"test {name}", score, least, least=True)
    elif candidate.predictions.multilabel:
        yield _better_than_prior(candidate.predictions, score)
    else:
        yield _better_than_largest_class(candidate, limits)
    yield from _limits(candidate, scores, limits)
    if (abstention := candidate.metrics.abstention) is not None:
        lowest, most = abstention.threshold, abstention.max_error
        start = "no confidence: it would answer nothing" if lowest is None else f"a confidence of {lowest:g}"
        reason = f"at most {most:g} of its answers are wrong (evaluate.max_error) from {start}"
        yield checks.judged("max_error", abstention.error, most, reason, passed=lowest is not None)


def _better_than_largest_class(candidate: Candidate, limits: GateConfig) -> Judged:
    """Check that the model beats always predicting the largest class; a difference by chance only shows."""
    top, accuracy = candidate.predictions, candidate.metrics.score
    counts = np.bincount(top.labels)
    largest, share = int(counts.argmax()), float(counts.max() / counts.sum())
    passed = accuracy > share
    reason = (
        f"test accuracy {accuracy:.4g} is {'' if passed else 'not '}above the {share:.4g} of always "
        f"predicting {printable(top.classes[largest])}"
    )
    right, simple = top.predicted == top.labels, top.labels == largest
    p_value = comparison.mcnemar(int((right & ~simple).sum()), int((simple & ~right).sum()))
    if passed and limits.significance is not None and p_value > limits.significance:
        reason += (
            f", which may be chance (p-value {p_value:.2g}, above gate.significance {limits.significance:g})"
        )
    return checks.judged("min_accuracy", accuracy, share, reason, passed=passed)


def _better_than_prior(top: Predictions, score: float) -> Judged:
    """Check that the model beats equal probabilities for every example."""
    prior = average_precision.prior(top.labels)
    passed = score > prior
    reason = f"test mAP {score:.4g} is {'' if passed else 'not '}above the {prior:.4g} of equal answers"
    return checks.judged("min_map", score, prior, reason, passed=passed)


def _not_finite(top: Predictions) -> Judged:
    count = int((~np.isfinite(top.probabilities).all(axis=1)).sum())
    reason = f"predictions of {count} of {len(top.labels)} test examples are not finite numbers"
    return checks.judged("finite", count, 0, reason, passed=False)


def _limits(candidate: Candidate, scores: Scores, limits: GateConfig) -> Iterator[Judged]:
    """Check the limits that apply without a champion."""
    if (least := limits.min_class_recall) is not None:
        lowest = int(scores.recall.argmin())  # the first without examples, if there is one
        name, recall = printable(candidate.predictions.classes[lowest]), float(scores.recall[lowest])
        if np.isnan(recall):
            reason = f"class {name} has no test examples, so gate.min_class_recall {least:g} fails"
            yield checks.judged("min_class_recall", None, least, reason, passed=False)
        else:
            what = f"lowest recall, of class {name},"
            yield checks.against("min_class_recall", what, recall, least, least=True)
    for name, what, value, limit in (
        ("max_calibration_error", "calibration error", scores.calibration_error, limits.max_calibration_error),
        ("max_model_mb", "size of the export in MB", candidate.model_bytes / MB, limits.max_model_mb),
        ("max_latency_ms", "median time of one image in ms", candidate.latency_ms, limits.max_latency_ms),
    ):
        if limit is not None and value is not None:
            yield checks.against(name, what, value, limit)
