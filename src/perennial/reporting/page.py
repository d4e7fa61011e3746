"""A run's report as one page of HTML that needs nothing but itself: no script, no network."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from perennial.config import Config
from perennial.evaluation.calibration import Reliability
from perennial.reporting import answers, figures
from perennial.reporting.gathering import Gathered
from perennial.reporting.outcome import ClassScores, Interval, Metrics
from perennial.validation import html

TEMPLATE = "report.html.jinja"
CLASSES = 50  # in the table; of more the worst are shown
MISTAKES = 24
CONFUSIONS = 12
PARAMETERS = (
    "model.name", "preprocessing.name", "train.optimizer", "train.learning_rate", "train.schedule.name",
    "train.batch_size", "train.precision", "train.keep", "train.seed", "train.deterministic",
)  # fmt: skip


def render(found: Gathered, config: Config, stages: Sequence[str], made: datetime) -> str:
    """The page; equal arguments give equal text."""
    pages = html.environment(Path(__file__).parent)
    pages.filters |= {"percent": percent, "duration": duration, "size": size}
    return pages.get_template(TEMPLATE).render(
        found=found,
        config=config,
        made=made,
        tiles=list(_tiles(found)),
        parameters=list(_parameters(config)),
        curves=list(_curves(found, config)),
        classes=_classes(found.metrics.per_class),
        most_classes=CLASSES,
        few=figures.FEW,
        splits=list(_splits(found)),
        untimed=[stage for stage in stages if stage not in found.seconds],
        slowest=max(found.seconds.values(), default=0),
        **dict(_scored(found, config)),
    )


def percent(share: float | None, digits: int = 2) -> str:
    """A share as people read it; nothing that is not all is called 100 %, nothing that is there 0 %."""
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
    """Seconds as people read them."""
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.1 else "< 0.1 s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return "{} h {} min".format(*divmod(round(seconds / 60), 60))


def size(number: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def _tiles(found: Gathered) -> Iterator[tuple[str, str, str]]:
    """Name, value and note of each number on top."""
    metrics, training = found.metrics, found.training
    yield "Test accuracy", percent(metrics.accuracy), _between(metrics, "accuracy")
    if (total := metrics.examples) is not None:
        yield "Mistakes", f"{round((1 - metrics.accuracy) * total):,}", f"of {total:,} examples"
    if metrics.recall_at_5 is not None and len(found.data.classes) > 5:
        yield "Among the top 5", percent(metrics.recall_at_5), _between(metrics, "recall_at_5")
    yield "Test loss", f"{metrics.loss:.4f}", "mean cross-entropy, in nats"
    if (ece := metrics.calibration.ece) is not None:
        yield "Calibration error", percent(ece), "how far p is from what is right (ECE)"
    kept = "" if training.kept == training.step else f"; kept is update {training.kept:,}"
    note = f"{training.step:,} updates, stopped by {training.stopped_by}{kept}"
    yield "Epochs", f"{training.epoch:,}", note


def _between(metrics: Metrics, score: str) -> str:
    """The interval of a share in words; empty where none is known, or not how sure it is."""
    found: Interval | None = metrics.intervals.get(score)
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


def _curves(found: Gathered, config: Config) -> Iterator[str]:
    training, validation = found.training_curve, found.validation_curve
    if training or validation:
        yield figures.loss(training, validation)
    if validation:
        threshold = config.train.stop_threshold if config.train.stop_metric == "accuracy" else None
        yield figures.accuracy(validation, threshold)
    if training:
        yield figures.learning_rate(training)


def _classes(per_class: Mapping[str, ClassScores]) -> list[dict[str, Any]]:
    """The classes with their scores, the worst first."""
    rows: list[dict[str, Any]] = [{**dict(scores), "name": name} for name, scores in per_class.items()]
    for row in rows:
        known = row["recall"] is not None and row["examples"] is not None
        row["missed"] = round((1 - row["recall"]) * row["examples"]) if known else None
    return sorted(rows, key=lambda row: 2 if row["recall"] is None else row["recall"])  # unknown ones last


def _scored(found: Gathered, config: Config) -> Iterator[tuple[str, object]]:
    """What is told of the answers to the test split, by the name that the template has for it."""
    given, paths, matrix, sure = found.answers, config.paths, found.matrix, found.reliability
    yield "matrix", figures.confusion(matrix) if matrix else None
    yield "wide", matrix is not None and len(matrix.names) > figures.FEW_CLASSES
    yield "folded", matrix is not None and bool(set(matrix.names) - set(found.data.classes))
    yield "reliability", figures.reliability(sure) if sure else None
    yield "intervals", list(_intervals(sure)) if sure else []
    yield "confusions", answers.confusions(given, CONFUSIONS) if given else []
    yield "mistakes", answers.worst(given, paths.records, paths.index, MISTAKES) if given else []


def _intervals(found: Reliability) -> Iterator[Mapping[str, float]]:
    """A line of the table of intervals of probability each, of those that have examples."""
    bins = len(found.examples)
    for number in np.flatnonzero(found.examples).tolist():
        yield {
            "low": 100 * number / bins,
            "high": 100 * (number + 1) / bins,
            "examples": int(found.examples[number]),
            "confidence": float(found.confidence[number]),
            "accuracy": float(found.accuracy[number]),
        }


def _splits(found: Gathered) -> Iterator[Mapping[str, object]]:
    """A line of the table of splits each."""
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
