"""Heatmaps of the worst mistakes: which parts of each image its wrong class depends on."""

import base64
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import Split
from perennial.base.config.paths import Paths
from perennial.base.errors import DataError
from perennial.base.parallel import child
from perennial.data.images import Refused
from perennial.model.evaluation.predictions import Predictions
from perennial.model.inference import image_inputs
from perennial.reports.report.suspects import scored_records

LOG = "heatmaps.log"  # of the process, in paths.work


def of_examples(
    predictions: Predictions, paths: Paths, classes: NDArray[np.int64], rows: Sequence[int]
) -> dict[int, str]:
    """Heatmaps of each example's class, by rows of the predictions, as URIs; empty if records are others."""
    records = scored_records(paths.records, paths.index, predictions.data)
    if records is None or not rows:
        return {}
    if not paths.export.is_dir():
        raise DataError(f"{paths.export} does not exist, so nothing is explained; `dvc repro export` makes it")
    images = []
    for row in rows:
        record = records.record(int(predictions.numbers[row]), cast(Split, predictions.split))
        encoded = base64.b64encode(record.encoded or b"").decode()  # none of a damaged record
        images.append([encoded, int(classes[row])])
    job = {"export": str(paths.export), "images": images}
    drawn = child.call(__name__, job, paths.work / LOG)
    return {row: f"data:image/png;base64,{each}" for row, each in zip(rows, drawn, strict=True) if each}


def main(job: dict[str, Any]) -> list[str | None]:
    """Draw each of job["images"] (base64, class) with the model job["export"]; None for one that it refuses."""
    load, occlusion = (
        importlib.import_module(name)
        for name in ("perennial.release.publishing.load", "perennial.model.inference.occlusion")
    )
    classifier, drawn = load.load(Path(job["export"])), list[str | None]()
    for encoded, index in job["images"]:
        try:
            source = image_inputs.from_record("the image", base64.b64decode(encoded))
            heat, pixels = occlusion.heatmap(classifier, source, index)
            drawn.append(base64.b64encode(occlusion.overlay(heat, pixels)).decode())
        except (Refused, DataError):
            drawn.append(None)
    return drawn
