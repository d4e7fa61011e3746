"""What a sink gets of a training: parameters, curves, scores, tags and files, from what stages wrote."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.dvc import dvc_lock
from perennial.base.errors import DataError, PerennialError
from perennial.base.project.git import repository
from perennial.base.project.stage_table import STAGES
from perennial.model import export_layout
from perennial.model.evaluation.results import read_results
from perennial.model.training.training_history import (
    FINGERPRINT,
    FINISHED,
    FOLDER,
    TRAINING_CURVE,
    VALIDATION_CURVE,
)
from perennial.release.registry import versions
from perennial.release.registry.checkout_state import results_in_git
from perennial.reports.report.run_origin import PARAMS, provenance

# Sections of params.yaml.
SENT = ("dataset", "validate", "preprocessing", "model", "train", "evaluate", "export", "gate")
GROUPS = {TRAINING_CURVE: "train", VALIDATION_CURVE: "validation"}  # as in TensorBoard
NAMES = {"train_accuracy": "accuracy"}
POSITIONS = ("step", "epoch")  # columns of curves that are no metric


@dataclass(frozen=True, kw_only=True)
class Point:
    """The metrics of a step."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is known of a training now; scores, files and export only when all stages are done."""

    training: str  # digest of its fingerprint, which a resumed training keeps
    weights: str | None  # SHA-256 of its weights, once it has ended
    name: str
    project: str  # groups trainings: an experiment of MLflow
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    curves: Mapping[str, tuple[Point, ...]]  # by group, in the order of steps
    scores: Mapping[str, float]
    files: tuple[Path, ...]
    export: Path | None


def of_training(config: Config, folder: Path) -> Content:
    """What is known of a training while it runs; `folder` is its run folder."""
    finished = folder / FINISHED
    weights = documents.read_json(finished).get("weights_sha256") if finished.exists() else None
    return Content(
        training=folder.name,
        weights=weights,
        name=f"{config.model.name} {folder.name[:8]}",
        project=config.record.artifact,
        params=_params(config),
        tags=_origin(config),
        curves=_curves(config.paths.curves),
        scores={},
        files=(),
        export=None,
    )


def of_results(config: Config) -> Content:
    """Everything about the training whose results the stages left."""
    results, paths = read_results(config.paths), config.paths
    weights, metrics, decision = results.training.weights_sha256, results.metrics, results.decision
    known = _folder(config, weights)
    found = (
        *(paths.metrics, paths.training, paths.decision, paths.report, Path(PARAMS), dvc_lock.FILE),
        *(paths.export / export_layout.CARD, paths.export / export_layout.README),
    )
    return Content(
        training=known.name if known else weights,
        weights=weights,
        name=f"{config.model.name} {(known.name if known else weights)[:8]}",
        project=config.record.artifact,
        params=_params(config),
        tags=_origin(config) | {"decision": decision.verdict, "reasons": "; ".join(decision.reasons)},
        curves=_curves(paths.curves),
        scores={
            f"test/{name}": value
            for name in ("accuracy", "map_macro", "loss", "recall_at_5", "exact_match")
            if (value := getattr(metrics, name)) is not None
        }
        | {"test/calibration_error": metrics.calibration.ece},
        files=tuple(file for file in found if file.is_file()),
        export=paths.export if (paths.export / export_layout.GRAPH).is_file() else None,
    )


def newest(config: Config, since: float) -> Path | None:
    """The run folder of the training that started after a time; None if none has yet."""
    trainings = config.paths.work / FOLDER
    started = {file.parent: file.stat().st_mtime for file in trainings.glob(f"[!.]*/{FINGERPRINT}")}
    folder = max(started, key=started.__getitem__, default=None)
    return folder if folder and started[folder] >= since else None


def _folder(config: Config, weights: str) -> Path | None:
    """The run folder of the training that made these weights, if it is on this machine."""
    for file in sorted((config.paths.work / FOLDER).glob(f"[!.]*/{FINISHED}")):
        try:
            if documents.read_json(file).get("weights_sha256") == weights:
                return file.parent
        except DataError:
            continue
    return None


def _params(config: Config) -> dict[str, Any]:
    values = config.model_dump(mode="json", by_alias=True)
    values["train"]["optimizer_options"] = config.train.optimizer_settings
    return documents.flattened({section: values[section] for section in SENT})


def _origin(config: Config) -> dict[str, str]:
    """The git revision, whether files differ from it, and the version that it is."""
    found = provenance(Path(), tuple(STAGES), results_in_git(config.paths))
    if found.revision is None:
        return {}
    tags = {"git.revision": found.revision}
    if found.changed:
        tags["git.changed"] = ", ".join(found.changed)
    try:
        git = repository(Path())
        registry = versions.read_artifact(git, config.record.artifact)
    except PerennialError:
        return tags
    here = [each.name for each in registry.versions if each.commit == found.revision]
    return tags | ({"version": f"{registry.artifact}@{here[-1]}"} if here else {})


def _curves(folder: Path) -> dict[str, tuple[Point, ...]]:
    """The points of both curves; a last line that is being written is left out."""
    return {group: tuple(_points(folder / name, group)) for name, group in GROUPS.items()}


def _points(file: Path, group: str) -> list[Point]:
    try:
        whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
    except OSError:
        return []
    return [
        Point(
            step=int(row["step"]),
            metrics={
                f"{group}/{NAMES.get(name, name)}": value
                for name, text in row.items()
                if name not in POSITIONS and math.isfinite(value := float(text))
            },
        )
        for row in csv.DictReader(whole.splitlines())
    ]
