"""What a sink gets of a training: parameters, curves, scores, tags and files, from what stages wrote."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.dvc import dvc_lock
from perennial.base.errors import PerennialError
from perennial.base.layout import PARAMS
from perennial.base.project.git import repository
from perennial.model import export_layout
from perennial.model.evaluation.results import read_results
from perennial.model.training.training_history import TRAINING_CURVE, VALIDATION_CURVE
from perennial.release.registry import versions
from perennial.release.registry.checkout_state import results_in_git
from perennial.reports.report.facts import provenance

# Sections of params.yaml.
SENT = ("dataset", "validate", "preprocessing", "model", "train", "evaluate", "export", "gate")
GROUPS = {TRAINING_CURVE: "train", VALIDATION_CURVE: "validation"}  # as in TensorBoard
NAMES = {"train_accuracy": "accuracy"}
POSITIONS = ("step", "epoch")  # columns of curves that are no metric
Curve = Sequence[tuple[int, Mapping[str, float]]]  # steps, in order, and the metrics of each


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is known of a training."""

    weights: str  # SHA-256
    name: str
    project: str  # groups trainings: an experiment of MLflow
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    curves: Sequence[Curve]
    scores: Mapping[str, float]
    files: tuple[Path, ...]
    export: Path | None


def of_results(config: Config) -> Content:
    """Everything about the training whose results the stages left."""
    results, paths = read_results(config.paths), config.paths
    weights, metrics, decision = results.training.weights_sha256, results.metrics, results.decision
    found = (
        *(paths.metrics, paths.training, paths.decision, paths.report, Path(PARAMS), dvc_lock.FILE),
        *(paths.export / export_layout.CARD, paths.export / export_layout.README),
    )
    return Content(
        weights=weights, name=f"{config.model.name} {weights[:8]}", project=config.record.artifact,
        params=_params(config),
        tags=_origin(config) | {"decision": decision.verdict, "reasons": "; ".join(decision.reasons)},
        curves=[_curve(paths.curves / name, group) for name, group in GROUPS.items()],
        scores={
            f"test/{name}": value
            for name in ("accuracy", "map_macro", "loss", "recall_at_5", "exact_match")
            if (value := getattr(metrics, name)) is not None
        }
        | {"test/calibration_error": metrics.calibration.ece},
        files=tuple(file for file in found if file.is_file()),
        export=paths.export if (paths.export / export_layout.GRAPH).is_file() else None,
    )  # fmt: skip


def _params(config: Config) -> dict[str, Any]:
    values = config.model_dump(mode="json", by_alias=True)
    values["train"]["optimizer_options"] = config.train.optimizer_settings
    return documents.flattened({section: values[section] for section in SENT})


def _origin(config: Config) -> dict[str, str]:
    """The git revision, whether files differ from it, and the version that it is."""
    found = provenance(results_in_git(config.paths))
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


def _curve(file: Path, group: str) -> Curve:
    curve = []
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines() if file.exists() else []):
        values = {name: float(text) for name, text in row.items() if name not in POSITIONS}
        finite = {
            f"{group}/{NAMES.get(name, name)}": each for name, each in values.items() if math.isfinite(each)
        }
        curve.append((int(row["step"]), finite))
    return curve
