"""The report of a run as one HTML page: no script, no network."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.config import Config
from perennial.base.errors import DataError
from perennial.base.params import advice
from perennial.base.project.stage_table import STAGES
from perennial.data.validation import html
from perennial.data.validation.html import Thumbnail
from perennial.data.validation.validation_report import by_split
from perennial.model.evaluation import diagnostics, plots
from perennial.model.evaluation.predictions import Predictions
from perennial.model.evaluation.results import ClassMetrics, Metrics
from perennial.release.gate import compared
from perennial.reports.report import beside_champion, facts, suspects
from perennial.reports.report.facts import Facts
from perennial.reports.report.summary import CURVES
from perennial.reports.report.suspects import picture, scored_records

CLASSES = 50  # in the table, the worst ones
MISTAKES = 24
CONFUSIONS = 12
PARAMETERS = (
    "model.name", "preprocessing.name", "train.optimizer", "train.learning_rate", "train.schedule.name",
    "train.batch_size", "train.precision", "train.keep", "train.seed", "train.deterministic",
)  # fmt: skip


class Mistake(NamedTuple):
    """An example with a wrong prediction."""

    number: int  # of the record in its split
    true: str
    predicted: str
    p: float  # of the predicted class, 0..1; of several labels, of the one that is most wrong
    p_true: float | None
    image: Thumbnail | None  # None if the records are not those that were scored
    wrong: str | None = None  # of several labels, the one that is most wrong


class ClassPair(NamedTuple):
    """A class that the model confuses with another one."""

    true: str
    predicted: str
    examples: int
    share: float  # of the true class's examples, 0..1


def write(config: Config) -> None:
    """Write the page and the curves."""
    file = config.paths.report
    try:
        found = facts.collect(config)
    except DataError as error:
        raise DataError(f"{error}; {file} is of an earlier run" if file.exists() else str(error)) from error
    curves = config.paths.work / CURVES
    if found.training_curve or found.validation_curve:
        plot = plots.curves(found.training_curve, found.validation_curve, threshold(config))
        files.write_bytes(curves, plot.png())
    else:
        curves.unlink(missing_ok=True)
    files.write_bytes(file, render(found, config, datetime.now(UTC)).encode())


def render(found: Facts, config: Config, made: datetime) -> str:
    """The page; equal arguments give equal text."""
    pages = html.environment(Path(__file__).parent)
    pages.filters |= {"percent": percent, "duration": duration}
    return pages.get_template("report.html.jinja").render(
        found=found, config=config, made=made, colors=plots.COLORS, tiles=list(_tiles(found)),
        parameters=[(name, attrgetter(name)(config)) for name in PARAMETERS],
        curves=list(_curves(found, config)), classes=_classes(found.results.metrics.per_class),
        most_classes=CLASSES, few=plots.FEW_EXAMPLES, splits=by_split(found.data.splits),
        changed=beside_champion.changed(found, config.paths),
        advice=advice.of_run(config, found.results.metrics.model_dump(), found.results.training.score),
        suspects=suspects.label_errors(config, found.results.metrics.data, found.results.metrics.model),
        copies=suspects.copies(config), champion_scores=beside_champion.champion_scores(found, config),
        budget=beside_champion.budget(config), promise=compared.promise(config.gate),
        compared=beside_champion.classes(found)[:CLASSES], slices=beside_champion.slices(found),
        untimed=[stage for stage in STAGES if stage not in found.seconds],
        slowest=max(found.seconds.values(), default=0), **_test(found, config),
    )  # fmt: skip


def threshold(config: Config) -> float | None:
    """The accuracy that ends a training, 0..1."""
    return config.train.stop_threshold if config.train.stop_metric in {"accuracy", "map"} else None


def percent(share: float | None, digits: int = 2) -> str:
    """Format a share for people; only 1 is shown as 100 %, only 0 as 0 %."""
    if share is None:
        return "-"
    shown, least = f"{100 * share:.{digits}f}", 10**-digits
    if share < 1 and float(shown) == 100:
        return f"> {100 - least:.{digits}f} %"
    if share > 0 and float(shown) == 0:
        return f"< {least:.{digits}f} %"
    return f"{shown} %"


def duration(seconds: float) -> str:
    """Format seconds for people."""
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.1 else "< 0.1 s"
    if round(seconds) < 3600:
        return "{} min {} s".format(*divmod(round(seconds), 60))
    return "{} h {} min".format(*divmod(round(seconds / 60), 60))


def _tiles(found: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and note of each number at the top of the page."""
    metrics, training = found.results.metrics, found.results.training
    by_label = metrics.task == "multilabel"
    if by_label:
        yield "Test mAP", percent(metrics.score), _between(metrics, "map_macro") + " (macro)"
        yield "F1, macro", percent(metrics.f1_macro), "at the thresholds"
        yield "Exact match", percent(metrics.exact_match), _between(metrics, "exact_match")
    else:
        yield "Test accuracy", percent(metrics.score), _between(metrics, "accuracy")
    right = metrics.score if metrics.exact_match is None else metrics.exact_match
    yield "Mistakes", f"{round((1 - right) * metrics.examples):,}", f"of {metrics.examples:,} examples"
    if metrics.recall_at_5 is not None and len(found.data.classes) > 5:
        yield "Top-5 accuracy", percent(metrics.recall_at_5), _between(metrics, "recall_at_5")
    yield "Test loss", f"{metrics.loss:.4f}", f"mean cross-entropy{' of a label' * by_label}, in nats"
    ece = percent(metrics.calibration.ece)
    note, before = "mean difference of probability and accuracy (ECE)", metrics.calibration.ece_before
    if before is not None:
        note += f"; {percent(before)} without the temperature {metrics.calibration.temperature:g}"
    yield "Calibration error", ece, note
    if (some := metrics.abstention) is not None:
        error = "none" if some.error is None else f"{percent(some.error)} of them wrong"
        yield "Answered", percent(some.coverage), f"{error}; at most {percent(some.max_error)} (max_error)"
    kept = "" if training.kept == training.step else f"; kept is step {training.kept:,}"
    note = f"{training.step:,} steps, stopped by {training.stopped_by}{kept}"
    yield "Epochs", f"{training.epoch:,}", note


def _between(metrics: Metrics, score: str) -> str:
    """The confidence interval of a share; empty without one."""
    if (found := metrics.intervals.get(score)) is None:
        return ""
    return f"{100 * metrics.confidence_level:.4g} %: {100 * found.low:.2f} to {100 * found.high:.2f}"


def _curves(found: Facts, config: Config) -> Iterator[plots.Plot]:
    training, validation = found.training_curve, found.validation_curve
    if training or validation:
        yield plots.loss(training, validation)
    if validation:
        yield plots.accuracy(validation, threshold(config))
    if training:
        yield plots.learning_rate(training)


def _classes(per_class: Mapping[str, ClassMetrics]) -> list[dict[str, Any]]:
    """The classes with their scores, the lowest recall first, those without examples last."""
    rows = [
        {
            **dict(scores),
            "name": name,
            "missed": None if scores.recall is None else round((1 - scores.recall) * scores.examples),
        }
        for name, scores in per_class.items()
    ]
    return sorted(rows, key=lambda row: 2 if row["recall"] is None else row["recall"])


def _test(found: Facts, config: Config) -> dict[str, Any]:
    """Values for the template's sections on the test split."""
    test = found.test
    if test is None:
        return {"matrix": None, "reliability": None, "mistakes": []}
    matrix, predictions, paths, found_bins = test.matrix, test.predictions, config.paths, test.reliability
    names, curve = predictions.classes, None
    if predictions.multilabel:
        curve = plots.precision_recall(predictions.labels, predictions.probabilities, names)
        names = (*names, diagnostics.NONE)
    edges = np.linspace(0, 100, len(found_bins.examples) + 1)
    rows = zip(edges, edges[1:], found_bins.examples, found_bins.confidence, found_bins.accuracy, strict=False)
    return {
        "matrix": plots.confusion(matrix),
        "wide": len(matrix.names) > plots.FEW_CLASSES,
        "folded": len(matrix.names) < len(predictions.classes),
        "undrawn": plots.without_glyph(matrix.names),
        "reliability": plots.reliability(found_bins, several=predictions.multilabel),
        "bins": [row for row in rows if row[2]],
        "confusions": most_confused(test.confusion, names, CONFUSIONS),
        "mistakes": most_confident(predictions, paths.records, paths.index, MISTAKES),
        "precision_recall": curve,
    }


def most_confused(counts: "scipy.sparse.coo_array", names: Sequence[str], most: int) -> list[ClassPair]:
    """The pairs of classes with the most mistakes, most frequent first."""
    wrong, per_class = np.flatnonzero(counts.row != counts.col), counts.sum(axis=1)
    largest = wrong[np.argsort(-counts.data[wrong], kind="stable")][:most]
    entries = zip(counts.row[largest], counts.col[largest], counts.data[largest], strict=True)
    return [
        ClassPair(names[true], names[predicted], int(count), float(count / per_class[true]))
        for true, predicted, count in entries
    ]


def most_confident(predictions: Predictions, records: Path, index: Path, most: int) -> list[Mistake]:
    """The most confident mistakes with their images."""
    wrong = np.flatnonzero(~predictions.right)
    worst, sure = _worst(predictions)
    chosen = wrong[np.argsort(-sure[wrong], kind="stable")][:most].tolist()
    scored = scored_records(records, index, predictions.data)
    return [
        Mistake(
            int(predictions.numbers[number]),
            true=beside_champion.named(predictions.classes, predictions.labels[number]),
            predicted=beside_champion.named(predictions.classes, predictions.predicted[number]),
            p=float(predictions.probabilities[number, worst[number]]),
            p_true=None if predictions.multilabel else float(predictions.p_true[number]),
            image=picture(scored, int(predictions.numbers[number]), predictions.split),
            wrong=predictions.classes[worst[number]] if predictions.multilabel else None,
        )
        for number in chosen
    ]


def _worst(predictions: Predictions) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The class of each example that is most wrong, and how sure the model is of it: [N]."""
    if not predictions.multilabel:
        return predictions.predicted, predictions.p
    p, labels = predictions.probabilities, predictions.labels
    sure = np.where(predictions.predicted != labels, np.where(labels != 0, 1 - p, p), -1)
    return sure.argmax(axis=1), sure.max(axis=1)
