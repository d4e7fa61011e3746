"""The model card: what somebody should know who is given the exported model and nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from perennial.config.release import ExportConfig
from perennial.config.training import TrainConfig
from perennial.models.saved import Description
from perennial.records.manifest import Manifest

FILE = "model_card.json"
SCORES = ("accuracy", "loss", "recall_at_5", "examples")
TEMPLATE = "card.md.jinja"


def card(
    description: Description,
    data: Manifest,
    metrics: Mapping[str, Any],
    training: Mapping[str, Any],
    *,
    train: TrainConfig,
    export: ExportConfig,
) -> dict[str, Any]:
    """The card as JSON, of the records of a training and its scores.

    What only a person can say is null where nobody did.
    """
    height, width, channels = description.pixels.raw_shape
    return {
        "architecture": description.name,
        "licence": export.card.licence,
        "intended_use": export.card.intended_use,
        "dataset": data.dataset,
        "data": description.data,
        "scored_on": metrics["data"],
        "classes": description.classes,
        "examples": {split: part.examples for split, part in data.splits.items()},
        "input": {
            "height": height,
            "width": width,
            "channels": channels,
            "range": "raw pixels, 0 to 255; the preprocessing is inside",
        },
        "preprocessing": description.pixels.preprocessing,
        "test": {name: metrics[name] for name in SCORES},
        "intervals": metrics["intervals"],
        "confidence_level": metrics["confidence_level"],
        "calibration": metrics["calibration"],
        "per_class": metrics["per_class"],
        "training": {
            "step": training["step"],
            "stopped_by": training["stopped_by"],
            "parameters": _used(train),
        },
        "formats": export.formats,
        "weights_sha256": description.weights_sha256,
    }


def markdown(card: Mapping[str, Any], forms: Sequence[tuple[str, str, int]]) -> str:
    """The card to read; `forms` are the name, file and bytes of each form besides the SavedModel."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # noqa: S701 - Markdown
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    parameters = _flat(card["training"]["parameters"], "train.")
    return templates.get_template(TEMPLATE).render(card=card, forms=forms, parameters=parameters)


def _used(train: TrainConfig) -> dict[str, Any]:
    """The parameters of a training, of the optimizers only the chosen one's."""
    values = train.model_dump(mode="json")
    values["optimizers"] = {key: value for key, value in values["optimizers"].items() if key == train.optimizer}
    return values


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, object]:
    """Each value by its full key."""
    found: dict[str, object] = {}
    for name, value in values.items():
        inner = _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
        found |= inner
    return found
