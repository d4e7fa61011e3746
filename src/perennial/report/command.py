"""`perennial report`: the last run as a page, as a summary and as details for programs."""

from datetime import UTC, datetime
from typing import Any

from perennial import files, plots
from perennial.config import Config
from perennial.errors import DataError
from perennial.evaluation.results import read_results
from perennial.records import manifest
from perennial.report import facts, page
from perennial.stages import STAGES
from perennial.validation.report import by_split

CURVES = "curves.png"  # in paths.work: of this machine alone, as the page is


def write(config: Config) -> None:
    """Write the report as one HTML page, which says why a part is missing.

    Raises:
        DataError: a required stage has not run yet, or on another model.
    """
    stages, file = tuple(STAGES), config.paths.report
    try:
        found = facts.collect(config, stages)
    except DataError as error:
        raise DataError(f"{error}; {file} is of an earlier run" if file.exists() else str(error)) from error
    curves = config.paths.work / CURVES
    if found.training_curve or found.validation_curve:
        plot = plots.curves(found.training_curve, found.validation_curve, page.threshold(config))
        files.write_bytes(curves, plot.png())
    else:
        curves.unlink(missing_ok=True)
    files.write_bytes(file, page.render(found, config, stages, datetime.now(UTC)).encode())


def summary(config: Config) -> dict[str, Any]:
    """The run in a few lines: name of each fact and its value.

    Raises:
        DataError: a stage has not run yet, or its result is damaged or of another model than the scores.
    """
    paths = config.paths
    results, data = read_results(paths), manifest.load(paths.records)
    training, metrics, decision = results.training, results.metrics, results.decision
    examples = ", ".join(f"{split} {part.examples:,}" for split, part in by_split(data.splits).items())
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
    """Scores of each class, and the picture files that exist."""
    paths = config.paths
    pictures = {
        "curves": paths.work / CURVES,
        "confusion": paths.confusion_plot,
        "reliability": paths.reliability_plot,
    }
    per_class = read_results(paths).metrics.per_class
    return {
        "per_class": {name: dict(scores) for name, scores in per_class.items()},
        "pictures": {name: str(file) for name, file in pictures.items() if file.is_file()},
    }
