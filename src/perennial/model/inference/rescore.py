"""Predict a split with an export; a separate program, because its caller does not import TensorFlow."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.base import documents
from perennial.base.choices import Split
from perennial.base.devices import devices
from perennial.base.errors import DataError, QualityError
from perennial.data.images import BadImage
from perennial.data.records import manifest, pipeline
from perennial.model.evaluation import average_precision, comparison
from perennial.model.export import loading
from perennial.model.export_layout import DESCRIPTION
from perennial.model.inference import image_inputs
from perennial.model.inference.classifier import Classifier
from perennial.model.inference.image_inputs import ImageSource


def main(job: dict[str, Any]) -> None:
    """Write the predictions of the export job["export"] on job["split"] of job["records"] to job["to"].

    The archive holds the arrays [N] of `evaluation.comparison.Champion`, and the main score as `validation`
    if that is the split: as a training scores it, so without mirror images.
    """
    kind, indices = devices.select(job["devices"], key="evaluate.devices")
    devices.configure(kind, indices[:1])
    devices.disable_tf32()
    export, records = Path(job["export"]), Path(job["records"])
    description = documents.read_json(export / DESCRIPTION)
    classes = [str(name) for name in description["classes"]]
    by_label, validates = description.get("task") == "multilabel", job["split"] == "validation"
    if validates and description.get("mirror"):
        raise QualityError("its export averages over mirror images, which no training does")
    labels, sources = _split(records, job["split"], classes)
    predicted, p = np.empty(len(labels), np.int64), np.empty(len(labels), np.float32)
    p_true = np.full(len(labels), np.nan, np.float32)
    probabilities = np.empty((len(labels), len(classes)), np.float32)
    try:
        model = loading.load(export)
    except DataError as error:
        raise QualityError(f"its export does not load: {error}") from error
    classifier = Classifier(model, classes)
    with pipeline.naming_shards(records, manifest.load(records)):
        for row, prediction in enumerate(classifier.predictions(sources, top=1)):
            if isinstance(prediction, BadImage):
                raise QualityError(f"{prediction.filename}: {prediction.reason}")
            if by_label:  # else the array stays untouched, and takes no memory
                probabilities[row] = prediction.probabilities
            predicted[row], p[row] = prediction.index, prediction.probability
            if not by_label and labels[row] >= 0:
                p_true[row] = prediction.probabilities[labels[row]]
    if by_label:
        answers = probabilities >= np.array(description["confidence"]["thresholds"], np.float32)
        predicted, p, p_true = answers.astype(np.int8), p[:0], p_true[:0]
    more: dict[str, Any] = {"probabilities": probabilities} if by_label else {}
    if validates and by_label:
        known = comparison.aligned(probabilities, classes, manifest.load(records).classes)
        more["validation"] = average_precision.macro(average_precision.per_class(labels, known))
    elif validates:
        more["validation"] = (predicted == labels).mean()
    np.savez(job["to"], predicted=predicted, p=p, p_true=p_true, **more)


def _split(
    folder: Path, split: Split, classes: Sequence[str]
) -> tuple[NDArray[np.int64], Iterator[ImageSource]]:
    """Return the index of each example's class in `classes` (-1 if missing), or its labels; and the images."""
    data = manifest.load(folder)
    index = {name: number for number, name in enumerate(classes)}
    ours = np.array([index.get(name, -1) for name in data.classes], np.int64)
    shards = data.splits[split].shards
    labels = [pipeline.encoded(folder, shard, data.label_columns)[0] for shard in shards]

    def images() -> Iterator[ImageSource]:
        for shard in shards:
            for number, image in enumerate(pipeline.encoded(folder, shard, data.label_columns)[1]):
                yield image_inputs.from_record(f"{folder / shard.file} record {number}", image)

    every = np.concatenate(labels)
    return every if every.ndim == 2 else ours[every], images()
