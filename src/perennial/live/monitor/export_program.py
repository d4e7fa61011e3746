"""Measure kept images and score new examples with an export, on the CPU: a GPU may be in use by a training.

A separate program, because its caller does not import TensorFlow.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from perennial.base import documents
from perennial.base.devices import devices
from perennial.base.errors import DataError
from perennial.data.images import BadImage, Refused
from perennial.model.inference import image_inputs
from perennial.model.inference.classifier import Classifier
from perennial.model.inference.image_inputs import ImageSource
from perennial.release.publishing import load

BATCH = 16  # images


def main(job: dict[str, Any]) -> Any:
    """Measure the images or score the examples of a job with its `export`."""
    devices.configure("cpu", [0])
    classifier = load.load(job["export"])
    return _measure(classifier, job) if "images" in job else _score(classifier, job)


def _measure(classifier: Classifier, job: dict[str, Any]) -> list[str]:
    """Measure the image files job["images"]; returns the files that the export does not take.

    The others' features [N, 256] and brightness [N] are written to job["to"], in order.
    """
    if classifier.reference is None:
        raise DataError(f"{job['export']} has no reference for drift")
    names, refused, found = list(job["images"]), list[str](), list[Any]()
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        try:
            found.append(classifier.statistics([Path(name).read_bytes() for name in batch]))
        except Refused:  # one of them: the others are measured alone
            for name in batch:
                try:
                    found.append(classifier.statistics([Path(name).read_bytes()]))
                except Refused:
                    refused.append(name)
    features, brightness = (np.concatenate(part) for part in zip(*found, strict=True)) if found else ((), ())
    np.savez(job["to"], features=features, brightness=brightness)
    return refused


def _score(classifier: Classifier, job: dict[str, Any]) -> dict[str, Any]:
    """Count the right answers for the examples in the file job["examples"]."""
    listed = documents.read_json(Path(job["examples"]))
    correct, refused = 0, list[str]()
    predictions = classifier.predictions(_images(Path(listed["file"]), listed["spans"]), top=1)
    for labels, prediction in zip(listed["labels"], predictions, strict=True):
        if isinstance(prediction, BadImage):
            refused.append(prediction.reason)
        else:
            # The most probable class also where the answer is unknown, as in the gate.
            one = [each.label for each in prediction.classes]
            correct += set(one if classifier.thresholds is None else prediction.labels) == set(labels)
    unknown = sorted(set(chain.from_iterable(listed["labels"])).difference(classifier.classes))
    reason = min(refused, default=None)
    return {"correct": correct, "refused": len(refused), "reason": reason, "unknown": unknown}


def _images(file: Path, spans: Sequence[Sequence[int]]) -> Iterator[ImageSource]:
    with file.open("rb") as stream:
        for number, (_, size) in enumerate(spans):  # one after the other
            yield image_inputs.from_record(f"new example {number}", stream.read(size))
