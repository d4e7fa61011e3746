"""What the last run gave, for a person; called beside the pipeline, never part of it."""

from datetime import UTC, datetime
from typing import Any

from perennial import files
from perennial.config import Config
from perennial.config.names import SPLITS
from perennial.records import manifest
from perennial.reporting import gathering, page, pictures
from perennial.reporting.outcome import outcome
from perennial.stages import STAGES

CURVES = "curves.png"  # of this machine alone, as the page is


def report(config: Config) -> None:
    """Writes the report as one page of HTML, which says of parts that are not there why.

    Raises:
        DataError: a stage that decides on the model has not run yet, or on another model.
    """
    stages = tuple(STAGES)
    found = gathering.gather(config, stages)
    curves = config.paths.work / CURVES
    if found.training_curve or found.validation_curve:
        files.write_bytes(curves, pictures.curves(found.training_curve, found.validation_curve))
    else:
        curves.unlink(missing_ok=True)
    text = page.render(found, config, stages, datetime.now(UTC))
    files.write_bytes(config.paths.report, text.encode())


def summary(config: Config) -> dict[str, Any]:
    """The run in a few lines: name of each fact and its value.

    Raises:
        DataError: a stage has not run yet, or its result is damaged or of another model than the scores.
    """
    paths = config.paths
    ended, data = outcome(paths), manifest.load(paths.records)
    training, metrics, decision = ended.training, ended.metrics, ended.decision
    splits = {split: data.splits[split] for split in SPLITS if split in data.splits}
    examples = ", ".join(f"{split} {part.examples:,}" for split, part in splits.items())
    return {
        "data set": data.dataset,
        "examples": examples,
        "epochs": training.epoch,
        "stopped by": training.stopped_by,
        "validation accuracy": round(training.accuracy, 4),
        "test accuracy": round(metrics.accuracy, 4),
        "test loss": round(metrics.loss, 4),
        "decision": ("promoted: " if decision.promote else "rejected: ") + "; ".join(decision.reasons),
        "model": str(paths.export),
        "report": str(paths.report),
    }


def details(config: Config) -> dict[str, Any]:
    """What has more than a line, for programs: the scores of each class, files of pictures."""
    paths = config.paths
    drawn = {
        "curves": paths.work / CURVES,
        "confusion": paths.confusion_plot,
        "reliability": paths.reliability_plot,
    }
    return {
        "per_class": {name: dict(scores) for name, scores in outcome(paths).metrics.per_class.items()},
        "pictures": {name: str(file) for name, file in drawn.items() if file.is_file()},
    }
