"""Evaluate the trained model on the test split, which no earlier stage reads for a decision."""

import hashlib
import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.config import Config
from perennial.base.devices import cluster, devices
from perennial.base.errors import DataError
from perennial.data.records import columns, manifest
from perennial.model.evaluation import diagnostics, label_errors, metrics, plots, split, unbiased
from perennial.model.evaluation.scoring import MultilabelScores
from perennial.model.models import model_folder

log = logging.getLogger(__name__)
SCORES = ("accuracy", "map_macro", "map_micro", "f1_macro", "exact_match", "loss")  # that DVC compares
SHOWN = {
    "accuracy": "accuracy", "map_macro": "mAP", "exact_match": "exact match", "loss": "loss",
    "recall_at_5": "recall@5",
}  # fmt: skip


def evaluate(config: Config) -> None:
    """Score every test example once; write predictions, metrics, confusion matrix and reliability diagram.

    With several workers (TF_CONFIG), only the chief evaluates.
    """
    worker = cluster.this_worker()
    if worker is not None and not worker.is_chief:
        log.info("worker %d of %d has nothing to do: worker 0 evaluates", worker.index, worker.count)
        return
    started = time.monotonic()
    devices.disable_tf32()
    names = devices.configure(*devices.select(config.evaluate.devices, key="evaluate.devices"))
    load, mirror = partial(model_folder.load, config.paths.model), config.export.mirror
    result = split.evaluate(config, "test", load, names, mirror=mirror)
    audit = None
    if config.evaluate.audit_fraction:
        chosen = _audited(config)
        right = result.right[chosen]
        result, audit = result.without(chosen), unbiased.score(int(right.sum()), len(right))
    found = _write(config, result, audit)
    _log_abstention(result)
    log.info(
        "evaluated %d examples on %s in %.1f s: %s", result.scores.examples, ", ".join(names),
        time.monotonic() - started,
        ", ".join(f"{shown} {found[name]:.4f}" for name, shown in SHOWN.items() if name in found),
    )  # fmt: skip


def _audited(config: Config) -> NDArray[np.bool_]:
    """The test examples that no decision reads, mask [N]."""
    folder, fraction = config.paths.records, config.evaluate.audit_fraction
    images = columns.examples(folder, manifest.load(folder), "test")
    chosen = unbiased.audited((hashlib.sha256(image).digest() for _, image in images), fraction)
    if chosen.all():
        raise DataError(
            f"evaluate.audit_fraction {fraction:g} leaves none of {len(chosen)} test examples to decide by; "
            "nothing was written; lower it, or set 0"
        )
    return chosen


def _log_abstention(result: split.SplitResult) -> None:
    if (found := result.abstention()) is None:
        return
    if found["threshold"] is None:
        log.warning(
            "the answer to every image is unknown: from no confidence are at most %g of the answers wrong "
            "(evaluate.max_error) on %d validation examples, so the gate rejects this model",
            found["max_error"], found["validation"]["examples"],
        )  # fmt: skip
        return
    log.info(
        "answers %d of %d test examples, %d of them wrongly; the others are unknown, with a confidence below "
        "%g (evaluate.max_error %g, from %d validation examples)",
        found["answered"], found["examples"], found["wrong"], found["threshold"], found["max_error"],
        found["validation"]["examples"],
    )  # fmt: skip


def _write(config: Config, result: split.SplitResult, audit: Mapping[str, Any] | None) -> dict[str, Any]:
    """Write all files, metrics last; `audit` is the score on examples that no decision reads."""
    predictions, paths = result.predictions, config.paths
    reliability, abstention = result.reliability(config.evaluate.calibration_bins), result.abstention()
    found = metrics.of_result(result, config.evaluate)
    title = f"{result.dataset}, {found['examples']} test examples"
    ece, several = f"{title}: ECE {reliability.ece:.4f}", predictions.multilabel
    diagram = plots.reliability(reliability, title=ece, several=several)
    table, picture = _confusion(config, result, title)
    predictions.write(paths.predictions)
    files.write_json(paths.label_errors, label_errors.described(paths.records, predictions))
    files.write_bytes(paths.confusion, table)
    files.write_bytes(paths.confusion_plot, picture.png())
    files.write_bytes(paths.reliability, diagnostics.reliability_csv(reliability))
    files.write_bytes(paths.reliability_plot, diagram.png())
    # For `dvc metrics` and `dvc exp show`, which show a column for each value.
    shown = {name: found[name] for name in SCORES if name in found}
    files.write_json(paths.scores, {**shown, "calibration_error": reliability.ece})
    more = {name: value for name, value in (("audit", audit), ("abstention", abstention)) if value is not None}
    files.write_json(paths.metrics, {**found, **more, "data": predictions.data, "model": predictions.model})
    return found


def _confusion(config: Config, result: split.SplitResult, title: str) -> tuple[bytes, plots.Plot]:
    """The confusions as CSV, and their picture; of several labels, the curves of precision over recall."""
    scores, judged = result.scores, result.predictions.judged()
    if undrawn := plots.without_glyph(judged.classes):
        log.info(
            "%s: Matplotlib's font lacks %s, so their classes are drawn as numbers; the report has the names",
            config.paths.confusion_plot, " ".join(undrawn),
        )  # fmt: skip
    if isinstance(scores, MultilabelScores):
        table = diagnostics.co_confusion_csv(judged.labels, judged.predicted, judged.classes)
        found = judged.labels, judged.probabilities, judged.classes
        return table, plots.precision_recall(*found, title=title, undrawn=undrawn)
    counts = diagnostics.confusion(scores.labels, scores.predicted, scores.classes)
    matrix = diagnostics.matrix(counts, judged.classes)
    table = diagnostics.confusion_csv(scores.labels, scores.predicted, matrix)
    return table, plots.confusion(matrix, title=f"{title}: accuracy {scores.accuracy:.4f}", undrawn=undrawn)
