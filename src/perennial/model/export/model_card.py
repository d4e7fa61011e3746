"""The model card: what users of an exported model should know, as JSON and as Markdown."""

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from perennial.base import documents
from perennial.base.config.data import DatasetConfig
from perennial.base.config.networks import network_facts
from perennial.base.config.release import ExportConfig
from perennial.base.config.training import TrainConfig
from perennial.base.layout import Project
from perennial.base.project import own_components
from perennial.data.records.manifest import Manifest
from perennial.model.evaluation import unbiased
from perennial.model.evaluation.results import Metrics, TrainingRecord
from perennial.model.models.model_folder import Description

TEMPLATE = "model_card.md.jinja"
SCORES = ("accuracy", "map_macro", "map_micro", "f1_macro", "exact_match", "loss", "recall_at_5", "examples")
MARKDOWN = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word has no meaning
LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")


def model_card(
    description: Description,
    data: Manifest,
    metrics: Metrics,
    training: TrainingRecord,
    *,
    train: TrainConfig,
    export: ExportConfig,
    dataset: DatasetConfig,
) -> dict[str, Any]:
    """Build the card as JSON; entries that only a person can write are null until they are set."""
    height, width, channels = description.pixels.raw_shape
    scores = metrics.model_dump()
    parameters = train.model_dump(mode="json", exclude={"warm_start": {"path"}})
    parameters["optimizer_options"] = train.optimizer_settings  # with its defaults
    parameters["teacher"] = training.teacher  # the champion of that day
    return {
        "architecture": description.name,
        "licence": export.card.licence,
        "intended_use": export.card.intended_use,
        "dataset": data.dataset,
        "data": description.data,
        "scored_on": metrics.data,
        "classes": description.classes,
        "examples": {split: part.examples for split, part in data.splits.items()},
        "input": {
            "height": height,
            "width": width,
            "channels": channels,
            "dtype": "uint8",
            "range": "raw pixels, 0 to 255; the preprocessing is inside",
            "transparency": dataset.transparency,
            "max_side": dataset.max_side,
        },
        "preprocessing": description.pixels.preprocessing,
        "pixels": {"version": description.pixels.version, "resize": description.pixels.resize},
        "mirrored": description.mirror or network_facts(description.name).mirrors,
        "pretrained": None if description.pretrained is None else description.pretrained.model_dump(),
        "test": {name: scores[name] for name in SCORES if scores[name] is not None},
        "unbiased": scores["audit"],
        **({} if metrics.abstention is None else {"abstention": scores["abstention"]}),
        **{name: scores[name] for name in ("intervals", "confidence_level", "calibration", "per_class")},
        **({"thresholds": metrics.thresholds} if metrics.thresholds else {}),
        "training": {"step": training.step, "stopped_by": training.stopped_by, "parameters": parameters},
        "formats": export.formats,
        "components": _components(description, data, train=train, export=export),
        "weights_sha256": description.weights_sha256,
    }


def _components(
    description: Description, data: Manifest, *, train: TrainConfig, export: ExportConfig
) -> dict[str, str]:
    """The files of what is no part of perennial, by key of params.yaml."""
    values = {
        "dataset": {"name": data.dataset},
        "preprocessing": {"name": description.pixels.preprocessing},
        "model": {"name": description.name},
        "train": train.model_dump(),
        "export": export.model_dump(),
    }
    return own_components.files_of(values, Project.find().root)


def markdown(card: Mapping[str, Any], formats: Sequence[tuple[str, str, str, int]]) -> str:
    """Render the card as Markdown; `formats`: name, file, input and bytes of each besides the SavedModel."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # noqa: S701 - Markdown; the filter escapes both
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters["text"] = escape
    templates.globals["unbiased"] = unbiased.text
    parameters = documents.flattened(card["training"]["parameters"], "train.")
    return templates.get_template(TEMPLATE).render(card=card, formats=formats, parameters=parameters)


def escape(text: str) -> str:
    """Escape user text as one line of Markdown that displays it literally, with or without HTML support."""
    return MARKDOWN.sub(r"\\\g<0>", html.escape(LINE_BREAKS.sub(" ", text), quote=False))
