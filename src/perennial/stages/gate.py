"""Gate stage: decide whether the new model may replace the champion. A rejection is a result, not a failure."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.config.release import GateConfig
from perennial.base.errors import DataError, printable
from perennial.base.parallel import child
from perennial.model.evaluation import average_precision, comparison, label_comparison, predictions, results
from perennial.model.evaluation.comparison import Champion, Comparison, Group, Scores
from perennial.model.evaluation.label_comparison import LabelGroup
from perennial.model.evaluation.predictions import Predictions
from perennial.model.evaluation.results import (
    CandidateRecord,
    ChampionRecord,
    Check,
    Decision,
    MainMetrics,
    UnbiasedScore,
)
from perennial.release.registry import verdict

log = logging.getLogger(__name__)
LATENCY = "perennial.model.inference.latency"
LOG = "latency.log"  # of the program that measures latency, in paths.work
ADVICE = "`dvc repro evaluate` makes or restores it; the old decision was kept"
MB = 1e6
DROP_LEVEL = 0.05  # how often the drops of an equally good model reject it, at most


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The new model and what the gate measures of it."""

    metrics: MainMetrics
    predictions: Predictions
    scores: Scores | None  # None if a prediction is not finite
    model_bytes: int  # of its export
    latency_ms: float | None  # median for one image; None if not measured


class Judged(NamedTuple):
    """A check, with the sentence that explains its result."""

    check: Check
    reason: str


def gate(config: Config, *, inputs: Mapping[str, Any] | None = None) -> None:
    """Decide whether the new model may become the champion, and write the decision.

    The decision holds `inputs`, the parameters and code as dvc.lock has them.
    """
    results.require_recorded(config.paths.training)
    candidate, champion = _candidate(config), comparison.read(config.paths.champion)
    decision = decide(candidate, champion, config.gate, bins=config.evaluate.calibration_bins)
    written = {**decision.as_json(), **({"inputs": inputs} if inputs else {})}
    files.write_json(config.paths.decision, written)
    log.info("%s", verdict.sentence(decision))


def _candidate(config: Config) -> Candidate:
    paths = config.paths
    metrics = documents.read_checked(paths.metrics, MainMetrics, ADVICE)
    top = predictions.read(paths.predictions).judged()
    if (top.model, top.data) != (metrics.model, metrics.data):
        raise DataError(
            f"{paths.predictions} is of model {top.model} and data {top.data}, {paths.metrics} of model "
            f"{metrics.model} and data {metrics.data}; {ADVICE}"
        )
    finite = bool(np.isfinite(top.probabilities).all())
    latency = None
    if config.gate.max_latency_ms is not None:
        latency = float(child.call(LATENCY, {"export": str(paths.export)}, paths.work / LOG))
    return Candidate(
        metrics=metrics,
        predictions=top,
        scores=_scores(top, bins=config.evaluate.calibration_bins) if finite else None,
        model_bytes=_bytes(paths.export),
        latency_ms=latency,
    )


def _scores(top: Predictions, *, bins: int) -> Scores:
    if top.multilabel:
        return label_comparison.scores(top.labels, top.probabilities, bins=bins)
    return comparison.scores(top.labels, top.right, top.p, top.p_true, classes=len(top.classes), bins=bins)


def _bytes(export: Path) -> int:
    """The size of an export in bytes, as dvc.lock counts it."""
    if not export.is_dir():
        raise DataError(f"{export} does not exist; `dvc repro export` makes or restores it")
    return sum(path.stat().st_size for path in export.rglob("*") if path.is_file())


def decide(candidate: Candidate, champion: Champion | None, limits: GateConfig, *, bins: int) -> Decision:
    """Pass a candidate that keeps every limit and, if there is a champion, beats it."""
    theirs, compared = None, None
    if champion and not champion.problem and candidate.scores:
        theirs, compared = _against(candidate.predictions, champion, bins=bins)
    judged = list(_checks(candidate, champion, compared, limits))
    failed = [rule.reason for rule in judged if not rule.check.passed]
    kept = [rule.reason for rule in judged]
    if champion is None:
        kept.append("compared with no champion")
    return Decision(
        promote=not failed,
        reasons=failed or kept,
        candidate=_recorded(candidate),
        champion=None if champion is None else _recorded_champion(champion, candidate.predictions, theirs),
        checks=[rule.check for rule in judged],
        comparison=None if compared is None else asdict(compared),
    )


def _against(
    top: Predictions, champion: Champion, *, bins: int
) -> tuple[Scores, Comparison] | tuple[None, None]:
    """The champion's scores on the examples that count, and the comparison; none if no example does."""
    rows, _, right = comparison.correct(top, champion)
    if not len(rows):
        return None, None
    labels, numbers, classes = top.labels[rows], top.numbers[rows], len(top.classes)
    if top.multilabel:
        theirs = label_comparison.probabilities(top, champion)[rows]
        return label_comparison.scores(labels, theirs, bins=bins), label_comparison.compare(top, champion)
    p, p_true = champion.p[numbers], champion.p_true[numbers]
    scores = comparison.scores(labels, right, p, p_true, classes=classes, bins=bins)
    return scores, comparison.compare(top, champion)


def _checks(
    candidate: Candidate, champion: Champion | None, compared: Comparison | None, limits: GateConfig
) -> Iterator[Judged]:
    scores = candidate.scores
    if scores is None:
        yield _not_finite(candidate.predictions)
        return
    score, name = candidate.metrics.score, candidate.metrics.score_name
    rule = "min_map" if candidate.predictions.multilabel else "min_accuracy"
    if (least := getattr(limits, rule)) is not None:
        yield _compared(rule, f"test {name}", score, least, least=True)
    elif candidate.predictions.multilabel:
        yield _better_than_prior(candidate.predictions, score)
    else:
        yield _better_than_largest_class(candidate, limits)
    yield from _limits(candidate, scores, limits)
    if (abstention := candidate.metrics.abstention) is not None:
        lowest, most = abstention.threshold, abstention.max_error
        start = "no confidence: it would answer nothing" if lowest is None else f"a confidence of {lowest:g}"
        reason = f"at most {most:g} of its answers are wrong (evaluate.max_error) from {start}"
        yield _judged("max_error", abstention.error, most, reason, passed=lowest is not None)
    if champion is None:
        return
    same = champion.model == candidate.metrics.model
    reason = f"the weights are {'' if same else 'not '}those of the champion {champion.version}"
    yield _judged(
        "new_weights", None, None, reason + ": there is nothing new to promote" * same, passed=not same
    )
    if same:
        return
    if compared is None:
        why = champion.problem or "it was trained on every example"
        reason = f"the champion {champion.version} cannot be compared on this test split: {why}"
        yield _judged("comparable", None, None, reason, passed=False)
        return
    yield from _better(champion, compared, limits, name)


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
        reason += f", which may be chance on {len(top.labels)} test examples (p-value {p_value:.2g})"
    return _judged("min_accuracy", accuracy, share, reason, passed=passed)


def _better_than_prior(top: Predictions, score: float) -> Judged:
    """Check that the model beats equal probabilities for every example."""
    prior = average_precision.prior(top.labels)
    passed = score > prior
    reason = f"test mAP {score:.4g} is {'' if passed else 'not '}above the {prior:.4g} of equal answers"
    return _judged("min_map", score, prior, reason, passed=passed)


def _not_finite(top: Predictions) -> Judged:
    count = int((~np.isfinite(top.probabilities).all(axis=1)).sum())
    reason = f"predictions of {count} of {len(top.labels)} test examples are not finite numbers"
    return _judged("finite", count, 0, reason, passed=False)


def _limits(candidate: Candidate, scores: Scores, limits: GateConfig) -> Iterator[Judged]:
    """Check the limits that apply without a champion."""
    if (least := limits.min_class_recall) is not None:
        lowest = int(scores.recall.argmin())  # the first without examples, if there is one
        name, recall = printable(candidate.predictions.classes[lowest]), float(scores.recall[lowest])
        if np.isnan(recall):
            reason = f"class {name} has no test examples, so gate.min_class_recall {least:g} fails"
            yield _judged("min_class_recall", None, least, reason, passed=False)
        else:
            yield _compared("min_class_recall", f"lowest recall, of class {name},", recall, least, least=True)
    for name, what, value, limit in (
        ("max_calibration_error", "calibration error", scores.calibration_error, limits.max_calibration_error),
        ("max_model_mb", "size of the export in MB", candidate.model_bytes / MB, limits.max_model_mb),
        ("max_latency_ms", "median time of one image in ms", candidate.latency_ms, limits.max_latency_ms),
    ):
        if limit is not None and value is not None:
            yield _compared(name, what, value, limit)


def _better(champion: Champion, comparison: Comparison, limits: GateConfig, score: str) -> Iterator[Judged]:
    """Check the rules of the comparison with the champion."""
    missing = ", ".join(map(printable, comparison.missing_classes))
    lacks = f"classes of the champion {champion.version} are missing: {missing}"
    reason = lacks if missing else f"every class of the champion {champion.version} is known"
    yield _judged("missing_classes", len(comparison.missing_classes), 0, reason, passed=not missing)
    unknown = ", ".join(map(printable, comparison.new_classes))
    new = f" (it does not know {unknown})" if unknown else ""
    won = f"{comparison.won} won and {comparison.lost} lost (negative flips: {comparison.negative_flips:.3g}) "
    won += f"of {comparison.examples} test examples{new}"
    won += "" if champion.probabilities is None else ", by exact match"
    if comparison.left_out:
        won += f", without {comparison.left_out} that {champion.version} was trained on"
    between = f"(95 %: {comparison.gain_low:.3g} to {comparison.gain_high:.3g})"
    what = f"gain in {score} over {champion.version} {between}, {won},"
    gain = _compared("min_gain", what, comparison.gain, limits.min_gain, least=True)
    if comparison.gain == 0:  # also where gate.min_gain is 0
        tie = f"a tie with {champion.version} does not pass: {won}"
        gain = _judged("min_gain", 0.0, limits.min_gain, tie, passed=False)
    yield gain
    if limits.significance is not None:
        yield _compared("significance", "p-value of the gain", comparison.p_value, limits.significance)
    yield from _drops(comparison, limits)
    if (limit := limits.max_negative_flips) is not None:
        yield _flips(champion, comparison, limit)


def _flips(champion: Champion, compared: Comparison, limit: float) -> Judged:
    """Check the share of examples that only the champion gets right, by the lower end of its interval."""
    share, low, high = compared.negative_flips, compared.negative_flips_low, compared.negative_flips_high
    passed, side = low <= limit, "within" if share <= limit else "above"
    chance = "" if share <= limit else ", but may be chance" if passed else " and no chance"
    reason = (
        f"{champion.version} got {compared.lost} test examples right that are wrong now: {share:.3g} (95 %: "
        f"{low:.3g} to {high:.3g}) is {side} gate.max_negative_flips {limit:g}{chance}"
    )
    return _judged("max_negative_flips", low, limit, reason, passed=passed)


def _drops(compared: Comparison, limits: GateConfig) -> Iterator[Judged]:
    """Check that no class or slice lost more than its limit, beyond chance.

    A drop counts if the exact McNemar test of the losses, or the permutation test of the average precision of a
    class, finds it at a level of 0.05 divided by the number of classes and slices that are judged (Bonferroni):
    of equally good models, at most 5 % are rejected, whatever the number of groups and however they overlap.
    """
    by_label = any(isinstance(group, LabelGroup) for group in compared.classes)
    of_class, of_slice = ("average precision", "exact match") if by_label else ("recall", "accuracy")
    rules = (
        ("max_class_drop", f"{of_class}, of class", limits.max_class_drop, compared.classes),
        ("max_slice_drop", f"{of_slice}, of slice", limits.max_slice_drop, compared.slices),
    )
    judged = sum(group.judged for *_, limit, found in rules if limit is not None for group in found)
    for name, what, limit, found in rules:
        if limit is not None and found:
            yield _drop(name, what, limit, found, judged)


def _drop(name: str, what: str, limit: float, groups: Sequence[Group], judged: int) -> Judged:
    """Check the drops of the classes, or of the slices; `judged` groups share the level."""
    level = DROP_LEVEL / max(judged, 1)
    beyond = [each for each in groups if each.judged and each.drop > limit and each.p_value <= level]
    worst = max(beyond or groups, key=lambda group: (group.drop, group.examples))
    check = Check(name=name, value=worst.drop if beyond else 0.0, limit=limit, passed=not beyond)
    drop = f"largest drop in {what} {printable(worst.name)}, {worst.drop:.4g}"
    counts = f"{worst.won} won and {worst.lost} lost of {worst.examples}"
    if beyond:
        chance = f"p-value {worst.p_value:.2g}, at most {level:.2g}: {DROP_LEVEL:g} over {judged} groups"
        return Judged(check, f"{drop} is above gate.{name} {limit:g} and no chance ({counts}; {chance})")
    if worst.drop <= 0:
        return Judged(check, f"no {what.rpartition(' ')[2]} has a lower score than the champion's")
    if worst.drop <= limit:
        return Judged(check, f"{drop} is within gate.{name} {limit:g} ({counts})")
    why = f"p-value {worst.p_value:.2g}, above {level:.2g}: {DROP_LEVEL:g} over {judged} groups"
    why = why if worst.judged else f"fewer than {comparison.ENOUGH} examples are not judged"
    return Judged(check, f"{drop} is above gate.{name} {limit:g}, but may be chance ({counts}; {why})")


def _compared(name: str, what: str, value: float, limit: float, *, least: bool = False) -> Judged:
    """Check a value against a limit: a maximum or, with `least`, a minimum."""
    passed = value >= limit if least else value <= limit
    reached, missed = ("reaches", "is below") if least else ("is within", "is above")
    # Rounded, unless rounding would make a near miss look like a pass.
    near = float(f"{value:.4g}") == float(f"{limit:.4g}") and value != limit
    digits = 17 if near else 4
    reason = f"{what} {value:.{digits}g} {reached if passed else missed} gate.{name} {limit:.{digits}g}"
    return _judged(name, value, limit, reason, passed=passed)


def _judged(name: str, value: float | None, limit: float | None, reason: str, *, passed: bool) -> Judged:
    return Judged(Check(name=name, value=value, limit=limit, passed=passed), reason)


def _recorded(candidate: Candidate) -> CandidateRecord:
    metrics, scores = candidate.metrics, candidate.scores
    latency = {} if candidate.latency_ms is None else {"latency_ms": candidate.latency_ms}
    return CandidateRecord(
        **{"map" if candidate.predictions.multilabel else "accuracy": metrics.score},
        loss=metrics.loss,
        examples=metrics.examples,
        data=metrics.data,
        model=metrics.model,
        split_digest=candidate.predictions.split_digest,
        model_bytes=candidate.model_bytes,
        calibration_error=None if scores is None else scores.calibration_error,
        **latency,
    )


def _recorded_champion(champion: Champion, top: Predictions, scores: Scores | None) -> ChampionRecord:
    """The fields of the champion; `scores` are on the same test examples, None without predictions on them."""
    fresh = None if scores is None else comparison.fresh_score(top, champion)
    return ChampionRecord(
        version=champion.version,
        commit=champion.commit,
        model=champion.model,
        model_bytes=champion.model_bytes,
        **{"map" if top.multilabel else "accuracy": None if scores is None else scores.score},
        loss=None if scores is None else scores.loss,
        calibration_error=None if scores is None else scores.calibration_error,
        unbiased=None if fresh is None else UnbiasedScore(**fresh),
    )
