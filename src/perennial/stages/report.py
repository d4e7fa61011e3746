"""What the last run gave, for a person; called beside the pipeline, never part of it."""

from typing import Any

from perennial import files
from perennial.config import Config
from perennial.errors import DataError
from perennial.records import manifest


def report(config: Config) -> None:
    """Writes the report as Markdown.

    Raises:
        DataError: a stage has not run yet.
    """
    rows = "".join(f"| {name} | {value} |\n" for name, value in summary(config).items())
    text = f"# Last run\n\n| | |\n|---|---|\n{rows}"
    files.write_bytes(config.paths.report, text.encode())


def summary(config: Config) -> dict[str, Any]:
    """The run in a few lines: name of each fact and its value.

    Raises:
        DataError: a stage has not run yet.
    """
    paths = config.paths
    for file in (paths.training, paths.metrics, paths.decision):
        if not file.is_file():
            raise DataError(f"{file} does not exist; `dvc repro` makes it")
    data, training = manifest.load(paths.records), files.read_json(paths.training)
    metrics, decision = files.read_json(paths.metrics), files.read_json(paths.decision)
    examples = ", ".join(f"{split} {data.splits[split].examples:,}" for split in manifest.SPLITS)
    return {
        "data set": data.dataset,
        "examples": examples,
        "epochs": training["epoch"],
        "stopped by": training["stopped_by"],
        "validation accuracy": round(training["evaluations"][-1]["accuracy"], 4),
        "test accuracy": round(metrics["accuracy"], 4),
        "test loss": round(metrics["loss"], 4),
        "decision": ("promoted: " if decision["promote"] else "rejected: ") + "; ".join(decision["reasons"]),
        "model": str(paths.export),
    }
