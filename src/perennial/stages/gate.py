"""Gate stage: decide whether the new model may replace the champion. A rejection is a result, not a failure."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.config.release import GateConfig
from perennial.base.errors import DataError
from perennial.base.parallel import child
from perennial.model.evaluation import comparison, label_comparison, predictions, results
from perennial.model.evaluation.comparison import Champion, Comparison, Scores
from perennial.model.evaluation.predictions import Predictions
from perennial.release.gate import champion_rules, own_limits
from perennial.release.gate.own_limits import Candidate
from perennial.release.registry import verdict

log = logging.getLogger(__name__)
LATENCY = "perennial.model.inference.latency"
LOG = "latency.log"  # of the program that measures latency, in paths.work
ADVICE = "`dvc repro evaluate` makes or restores it; the old decision was kept"


def gate(config: Config, *, inputs: Mapping[str, Any] | None = None) -> None:
    """Decide whether the new model may become the champion; `inputs`: parameters and code as in dvc.lock."""
    results.require_recorded(config.paths.training)
    champion = comparison.read(config.paths.champion)
    candidate = _candidate(config, champion)
    decision = decide(candidate, champion, config.gate, bins=config.evaluate.calibration_bins)
    written = {**decision.as_json(), **({"inputs": inputs} if inputs else {})}
    files.write_json(config.paths.decision, written)
    log.info("%s", verdict.sentence(decision))


def _candidate(config: Config, champion: Champion | None) -> Candidate:
    paths = config.paths
    metrics = documents.read_checked(paths.metrics, results.MainMetrics, ADVICE)
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
    validation = None  # read only where the champion has a score to compare with
    if champion and champion.validation is not None:
        validation = documents.read_checked(paths.training, results.TrainingRecord, ADVICE).score
    return Candidate(
        metrics=metrics,
        predictions=top,
        scores=_scores(top, bins=config.evaluate.calibration_bins) if finite else None,
        model_bytes=_bytes(paths.export),
        latency_ms=latency,
        validation=validation,
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


def decide(
    candidate: Candidate, champion: Champion | None, limits: GateConfig, *, bins: int
) -> results.Decision:
    """Pass a candidate that keeps every limit and, if there is a champion, beats it."""
    theirs, compared, spent = None, None, {}
    if champion and not champion.problem and candidate.scores:
        theirs, compared = _against(candidate.predictions, champion, bins=bins)
        validated = champion_rules.validation(candidate, champion, limits)
        new = champion.model != candidate.metrics.model
        by_traffic = champion_rules.traffic_decides(compared, limits)
        if new and validated and not validated.check.passed and not by_traffic:
            compared = None
        elif new and compared and limits.false_share is not None:
            state = champion_rules.budget(champion)
            spent = {"budget": {**state._asdict(), "level": state.level(limits)}}
    judged = list(own_limits.of_candidate(candidate, limits))
    if champion is not None and candidate.scores is not None:
        judged += champion_rules.against_champion(candidate, champion, compared, limits)
    failed = [rule.reason for rule in judged if not rule.check.passed]
    kept = [rule.reason for rule in judged]
    if champion is None:
        kept.append("compared with no champion")
    return results.Decision(
        promote=not failed,
        reasons=failed or kept,
        candidate=_recorded(candidate),
        champion=None if champion is None else _recorded_champion(champion, candidate.predictions, theirs),
        checks=[rule.check for rule in judged],
        comparison=None if compared is None else asdict(compared),
        **spent,
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


def _recorded(candidate: Candidate) -> results.CandidateRecord:
    metrics, scores = candidate.metrics, candidate.scores
    latency = {} if candidate.latency_ms is None else {"latency_ms": candidate.latency_ms}
    return results.CandidateRecord(
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


def _recorded_champion(champion: Champion, top: Predictions, scores: Scores | None) -> results.ChampionRecord:
    """The fields of the champion; `scores` are on the same test examples, None without predictions on them."""
    fresh = None if scores is None else comparison.fresh_score(top, champion)
    return results.ChampionRecord(
        version=champion.version,
        commit=champion.commit,
        model=champion.model,
        model_bytes=champion.model_bytes,
        **{"map" if top.multilabel else "accuracy": None if scores is None else scores.score},
        loss=None if scores is None else scores.loss,
        calibration_error=None if scores is None else scores.calibration_error,
        unbiased=None if fresh is None else results.UnbiasedScore(**fresh),
    )
