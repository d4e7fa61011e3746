"""The report of a run as one HTML page: no script, no network."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from perennial import plots
from perennial.config import Config
from perennial.evaluation.diagnostics import Reliability
from perennial.report import mistakes
from perennial.report.facts import Facts
from perennial.report.results import ClassScores, Metrics
from perennial.validation import html

TEMPLATE = "report.html.jinja"
CLASSES = 50  # in the table, the worst ones
MISTAKES = 24
CONFUSIONS = 12
PARAMETERS = (
    "model.name", "preprocessing.name", "train.optimizer", "train.learning_rate", "train.schedule.name",
    "train.batch_size", "train.precision", "train.keep", "train.seed", "train.deterministic",
)  # fmt: skip


def render(found: Facts, config: Config, stages: Sequence[str], made: datetime) -> str:
    """The page; equal arguments give equal text."""
    pages = html.environment(Path(__file__).parent)
    pages.filters |= {"percent": percent, "duration": duration, "size": size}
    return pages.get_template(TEMPLATE).render(
        found=found,
        config=config,
        made=made,
        colors=plots.COLORS,
        tiles=list(_tiles(found)),
        parameters=list(_parameters(config)),
        curves=list(_curves(found, config)),
        classes=_classes(found.results.metrics.per_class),
        most_classes=CLASSES,
        few=plots.FEW_EXAMPLES,
        splits=list(_splits(found)),
        untimed=[stage for stage in stages if stage not in found.seconds],
        slowest=max(found.seconds.values(), default=0),
        **_test(found, config),
    )


def threshold(config: Config) -> float | None:
    """The accuracy that ends a training, 0..1."""
    return config.train.stop_threshold if config.train.stop_metric == "accuracy" else None


def percent(share: float | None, digits: int = 2) -> str:
    """A share to read; only 1 is shown as 100 %, only 0 as 0 %."""
    if share is None:
        return "-"
    shown = f"{100 * share:.{digits}f}"
    least = 10**-digits
    if share < 1 and float(shown) == 100:
        return f"> {100 - least:.{digits}f} %"
    if share > 0 and float(shown) == 0:
        return f"< {least:.{digits}f} %"
    return f"{shown} %"


def duration(seconds: float) -> str:
    """Seconds to read."""
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.1 else "< 0.1 s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return "{} h {} min".format(*divmod(round(seconds / 60), 60))


def size(number: float) -> str:
    """Bytes to read."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def _tiles(found: Facts) -> Iterator[tuple[str, str, str]]:
    """Name, value and note of each number at the top."""
    metrics, training = found.results.metrics, found.results.training
    yield "Test accuracy", percent(metrics.accuracy), _between(metrics, "accuracy")
    if (total := metrics.examples) is not None:
        yield "Mistakes", f"{round((1 - metrics.accuracy) * total):,}", f"of {total:,} examples"
    if metrics.recall_at_5 is not None and len(found.data.classes) > 5:
        yield "Top-5 accuracy", percent(metrics.recall_at_5), _between(metrics, "recall_at_5")
    yield "Test loss", f"{metrics.loss:.4f}", "mean cross-entropy, in nats"
    if (ece := metrics.calibration.ece) is not None:
        yield "Calibration error", percent(ece), "mean difference of probability and accuracy (ECE)"
    kept = "" if training.kept == training.step else f"; kept is step {training.kept:,}"
    note = f"{training.step:,} steps, stopped by {training.stopped_by}{kept}"
    yield "Epochs", f"{training.epoch:,}", note


def _between(metrics: Metrics, score: str) -> str:
    """The confidence interval of a share; empty without one, or without its level."""
    found = metrics.intervals.get(score)
    if found is None or metrics.confidence_level is None:
        return ""
    return f"{100 * metrics.confidence_level:.4g} %: {100 * found.low:.2f} to {100 * found.high:.2f}"


def _parameters(config: Config) -> Iterator[tuple[str, object]]:
    values = config.model_dump(mode="json", by_alias=True)
    for name in PARAMETERS:
        value: Any = values
        for key in name.split("."):
            value = value[key]
        yield name, str(value).lower() if isinstance(value, bool) else value


def _curves(found: Facts, config: Config) -> Iterator[plots.Plot]:
    training, validation = found.training_curve, found.validation_curve
    if training or validation:
        yield plots.loss(training, validation)
    if validation:
        yield plots.accuracy(validation, threshold(config))
    if training:
        yield plots.learning_rate(training)


def _classes(per_class: Mapping[str, ClassScores]) -> list[dict[str, Any]]:
    """The classes with their scores, the lowest recall first."""
    rows: list[dict[str, Any]] = [{**dict(scores), "name": name} for name, scores in per_class.items()]
    for row in rows:
        known = row["recall"] is not None and row["examples"] is not None
        row["missed"] = round((1 - row["recall"]) * row["examples"]) if known else None
    return sorted(rows, key=lambda row: 2 if row["recall"] is None else row["recall"])  # unknown ones last


def _test(found: Facts, config: Config) -> dict[str, Any]:
    """Values for the template's sections on the test split."""
    test = found.test
    if test is None:
        return {"matrix": None, "reliability": None, "mistakes": []}
    matrix, predictions, paths = test.matrix, test.predictions, config.paths
    return {
        "matrix": plots.confusion(matrix),
        "wide": len(matrix.names) > plots.FEW_CLASSES,
        "folded": len(matrix.names) < len(predictions.classes),
        "undrawn": plots.find_fonts(matrix.names).missing,
        "reliability": plots.reliability(test.reliability),
        "bins": list(_bins(test.reliability)),
        "confusions": mistakes.most_confused(test.confusion, predictions.classes, CONFUSIONS),
        "mistakes": mistakes.most_confident(predictions, paths.records, paths.index, MISTAKES),
    }


def _bins(found: Reliability) -> Iterator[Mapping[str, float]]:
    """Rows of the table of non-empty bins."""
    bins = len(found.examples)
    for number in np.flatnonzero(found.examples).tolist():
        yield {
            "low": 100 * number / bins,
            "high": 100 * (number + 1) / bins,
            "examples": int(found.examples[number]),
            "confidence": float(found.confidence[number]),
            "accuracy": float(found.accuracy[number]),
        }


def _splits(found: Facts) -> Iterator[Mapping[str, object]]:
    """Rows of the table of splits."""
    for split in (split for split in ("train", "validation", "test") if split in found.data.splits):
        part = found.data.splits[split]
        yield {
            "split": split,
            "examples": part.examples,
            "least": min(part.per_class, default=None),
            "most": max(part.per_class, default=None),
            "shards": len(part.shards),
            "bytes": sum(shard.bytes for shard in part.shards),
        }
