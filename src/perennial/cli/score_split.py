"""`perennial evaluate --split`: scores of any model on any split, without changing the pipeline's files."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras

from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.devices import devices
from perennial.base.errors import ConfigError
from perennial.model.evaluation import metrics
from perennial.model.evaluation import split as splits
from perennial.model.export_layout import DESCRIPTION
from perennial.model.models import model_folder
from perennial.model.models.model_folder import Description
from perennial.release.publishing.load import find_export

SCORES = ("accuracy", "map_macro", "map_micro", "f1_macro", "exact_match", "loss", "recall_at_5")  # as shown


def score(
    config: Config, split: Split, *, model: Path | None, predictions: Path | None
) -> tuple[dict[str, Any], str]:
    """Score a model, by default the run's own, on a split; returns the scores, and a table."""
    if predictions is not None:
        _require_free(config, predictions)
    folder = config.paths.model if model is None else model
    load, is_export = _loader(folder)
    devices.disable_tf32()
    names = devices.configure(*devices.select(config.evaluate.devices, key="evaluate.devices"))
    mirror = config.export.mirror and not is_export
    found = splits.evaluate(config, split, load, names, fit=not is_export, mirror=mirror)
    if predictions is not None:
        found.predictions.write(predictions)
    scores = metrics.of_result(found, config.evaluate)
    if (abstention := found.abstention()) is not None:
        scores["abstention"] = abstention
    made = found.predictions
    scores = {**scores, "split": made.split, "data": made.data, "model": made.model}
    return scores, f"{folder} on {scores['examples']} {split} examples of {found.dataset}\n{_table(scores)}"


def _require_free(config: Config, file: Path) -> None:
    for path in asdict(config.paths).values():
        if file.resolve().is_relative_to(path.resolve()):
            raise ConfigError(f"--predictions {file} would overwrite files of the pipeline in {path}")
    if file.suffix != ".npz":
        raise ConfigError(f"--predictions {file} must be named *.npz: it becomes a NumPy archive")
    if file.is_dir():
        raise ConfigError(f"--predictions {file} is a folder, expected a file name")


def _loader(folder: Path) -> tuple[Callable[[], tuple[keras.Model, Description]], bool]:
    """Return a function that loads a model folder, an export or a version, and whether it is an export."""
    export = find_export(folder)
    if export or (folder / DESCRIPTION).exists():
        return lambda: model_folder.load_export(export or folder), True
    if (folder / model_folder.FILE).exists() or next(folder.glob(f"{model_folder.WEIGHTS}.*"), None):
        return lambda: model_folder.load(folder), False
    if not folder.exists():
        raise ConfigError(
            f"{folder} does not exist; name a model folder (models/weights), an export or a publish folder"
        )
    raise ConfigError(
        f"{folder} is neither a model folder (models/weights) nor an export (models/export) nor a publish "
        "folder; for checkpoints use `perennial evaluate --watch FOLDER --once`"
    )


def _table(scores: dict[str, Any]) -> str:
    """Format the scores with their intervals, then one line per class."""
    lines = []
    for name in (each for each in SCORES if each in scores):
        line, level = f"{name:<12}{scores[name]:>9.4f}", 100 * scores["confidence_level"]
        if interval := scores["intervals"].get(name):
            line += "   {low:.4f} to {high:.4f} ({level:g} %)".format(**interval, level=level)
        lines.append(line)
    lines.append(f"{'ece':<12}{(calibration := scores['calibration'])['ece']:>9.4f}")
    if temperature := calibration.get("temperature"):
        lines[-1] += f"   {calibration['ece_before']:.4f} without the temperature {temperature:g}"
    if abstention := scores.get("abstention"):
        known = "{answered} of {examples}, {wrong} of them wrongly (max_error {max_error:g})"
        lines.append(f"{'answered':<12}{abstention['coverage']:>9.4f}   {known.format(**abstention)}")
    width = max(len(name) for name in ("class", *scores["per_class"]))
    further = {"average_precision": "AP", "threshold": "threshold"} if "map_macro" in scores else {}
    columns = {"precision": "precision", "recall": "recall", "f1": "f1"} | further
    lines += ["", f"{'class':<{width}}{'examples':>10}" + "".join(f"{name:>11}" for name in columns.values())]
    for name, each in scores["per_class"].items():
        values = ("-" if each[column] is None else f"{each[column]:.4f}" for column in columns)
        lines.append(f"{name:<{width}}{each['examples']:>10}" + "".join(f"{value:>11}" for value in values))
    share = "exact" if "map_macro" in scores else "accuracy"
    for column, slices in scores.get("slices", {}).items():
        width = max(map(len, (column, *slices)))
        lines += ["", f"{column:<{width}}{'examples':>10}{share:>11}"]
        lines += [
            f"{value:<{width}}{each['examples']:>10}{each['accuracy']:>11.4f}" for value, each in slices.items()
        ]
    return "\n".join(lines)
