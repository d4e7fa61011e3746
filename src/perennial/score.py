"""What a person asks of a model: its scores on any split, without touching what the pipeline wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import typer

from perennial import accelerators
from perennial.config import Config
from perennial.errors import ConfigError
from perennial.evaluation import calibration, metrics
from perennial.evaluation.answers import Answers, answers
from perennial.formats import location
from perennial.models import saved
from perennial.models.saved import Description
from perennial.records.manifest import Split


def score(config: Config, split: Split, *, model: Path | None, predictions: Path | None, as_json: bool) -> None:
    """Prints the scores of a model folder or export, the run's own where none is named, on a split.

    What it said of each example goes to `predictions`, where that is named.

    Raises:
        ConfigError: there is no such model, the devices are not there, or a file of the pipeline would be
            overwritten.
        DataError: the records or the model are not sound, or do not go together.
        QualityError: a weight or a logit is not finite.
    """
    if predictions is not None:
        _require_free(config, predictions)
    folder = config.paths.model if model is None else model
    load = _loader(folder)
    accelerators.compute_exactly()
    devices = accelerators.set_up(*accelerators.asked(config.evaluate.devices, key="evaluate.devices"))
    found = answers(config, split, load, devices)
    if predictions is not None:
        found.predictions.write(predictions)
    told = _metrics(config, found)
    if as_json:
        typer.echo(json.dumps(told, indent=2, sort_keys=True, allow_nan=False))
    else:
        typer.echo(f"{folder} on {told['examples']} {split} examples of {found.dataset}")
        typer.echo(_table(told))


def _require_free(config: Config, file: Path) -> None:
    for path in (getattr(config.paths, name) for name in type(config.paths).model_fields):
        if file.resolve().is_relative_to(path.resolve()):
            raise ConfigError(f"--predictions {file} would overwrite what the pipeline keeps in {path}")
    if file.suffix != ".npz":
        raise ConfigError(f"--predictions {file} must be named *.npz: a NumPy archive is written")
    if file.is_dir():
        raise ConfigError(f"--predictions {file} is a folder, expected the name of a file to write")


def _loader(folder: Path) -> Callable[[], tuple[keras.Model, Description]]:
    """What reads a model folder, an export or that of a publish folder: any part of it tells which."""
    export = location.found(folder)
    if export or (folder / saved.EXPORTED).exists():
        return lambda: saved.load_export(export or folder)
    if (folder / saved.FILE).exists() or next(folder.glob(f"{saved.WEIGHTS}.*"), None):
        return lambda: saved.load(folder)
    if not folder.exists():
        raise ConfigError(
            f"{folder} does not exist; name a model folder (paths.model), an export or a publish folder"
        )
    raise ConfigError(
        f"{folder} is neither a model folder (paths.model) nor an export (paths.export) nor a publish folder; "
        "checkpoints are scored by `perennial evaluate --watch FOLDER --once`"
    )


def _metrics(config: Config, found: Answers) -> dict[str, Any]:
    said = found.predictions
    bins = config.evaluate.calibration_bins
    reliability = calibration.reliability(said.probabilities, said.labels, bins=bins)
    told = metrics.metrics(found.scores, said.classes, reliability, config.evaluate)
    return {**told, "split": said.split, "data": said.data, "model": said.model}


def _table(told: dict[str, Any]) -> str:
    """The scores with their intervals, then a line a class."""
    lines = []
    for name in ("accuracy", "loss", "recall_at_5"):
        interval = told["intervals"].get(name)
        ends = (
            "   {low:.4f} to {high:.4f} ({level:g} %)".format(**interval, level=100 * told["confidence_level"])
            if interval
            else ""
        )
        lines.append(f"{name:<12}{told[name]:>9.4f}{ends}")
    lines.append(f"{'ece':<12}{told['calibration']['ece']:>9.4f}")
    width = max(len(name) for name in ("class", *told["per_class"]))
    columns = ("precision", "recall", "f1")
    lines += ["", f"{'class':<{width}}{'examples':>10}" + "".join(f"{name:>11}" for name in columns)]
    for name, each in told["per_class"].items():
        values = ("-" if each[column] is None else f"{each[column]:.4f}" for column in columns)
        lines.append(f"{name:<{width}}{each['examples']:>10}" + "".join(f"{value:>11}" for value in values))
    return "\n".join(lines)
