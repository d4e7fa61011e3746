"""Evaluate the trained model on the test split, which no earlier stage reads for a decision."""

import hashlib
import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.config import Config
from perennial.base.devices import cluster, devices
from perennial.base.errors import DataError
from perennial.data.records import columns, manifest
from perennial.model.evaluation import diagnostics, label_errors, metrics, plots, split, unbiased
from perennial.model.evaluation.split import SplitResult
from perennial.model.models import model_folder

log = logging.getLogger(__name__)


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
    result = split.evaluate(config, "test", lambda: model_folder.load(config.paths.model), names)
    audit = None
    if config.evaluate.audit_fraction:
        chosen = _audited(config)
        right = (result.scores.predicted == result.scores.labels)[chosen]
        result, audit = result.without(chosen), unbiased.score(int(right.sum()), len(right))
    scores = result.scores
    _write(config, result, audit)
    _log_abstention(result)
    log.info(
        "evaluated %d examples on %s in %.1f s: accuracy %.4f, loss %.4f, recall@5 %.4f",
        scores.examples, ", ".join(names), time.monotonic() - started,
        scores.accuracy, scores.loss, scores.recall_at_5,
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


def _log_abstention(result: SplitResult) -> None:
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


def _write(config: Config, result: SplitResult, audit: Mapping[str, Any] | None) -> None:
    """Write all files, metrics last; `audit` is the score on examples that no decision reads."""
    predictions, scores, paths = result.predictions, result.scores, config.paths
    bins = config.evaluate.calibration_bins
    reliability, temperature, abstention = (
        result.reliability(bins),
        result.calibration(bins),
        result.abstention(),
    )
    judged = predictions.judged()
    found = metrics.compute(scores, judged.classes, reliability, config.evaluate, judged.slices, temperature)
    counts = diagnostics.confusion(scores.labels, scores.predicted, scores.classes)
    matrix = diagnostics.matrix(counts, predictions.classes)
    if undrawn := plots.without_glyph(matrix.names):
        log.info(
            "%s: Matplotlib's font lacks %s, so their classes are drawn as numbers; the report has the names",
            paths.confusion_plot, " ".join(undrawn),
        )  # fmt: skip
    title = f"{result.dataset}, {scores.examples} test examples"
    confusion = plots.confusion(matrix, title=f"{title}: accuracy {scores.accuracy:.4f}", undrawn=undrawn)
    diagram = plots.reliability(reliability, title=f"{title}: ECE {reliability.ece:.4f}")
    predictions.write(paths.predictions)
    files.write_json(paths.label_errors, label_errors.described(paths.records, predictions))
    files.write_bytes(paths.confusion, diagnostics.confusion_csv(scores.labels, scores.predicted, matrix))
    files.write_bytes(paths.confusion_plot, confusion.png())
    files.write_bytes(paths.reliability, diagnostics.reliability_csv(reliability))
    files.write_bytes(paths.reliability_plot, diagram.png())
    # For `dvc metrics` and `dvc exp show`, which show a column for each value.
    shown = {"accuracy": scores.accuracy, "loss": scores.loss, "calibration_error": reliability.ece}
    files.write_json(paths.scores, shown)
    more = {name: value for name, value in (("audit", audit), ("abstention", abstention)) if value is not None}
    files.write_json(paths.metrics, {**found, **more, "data": predictions.data, "model": predictions.model})
