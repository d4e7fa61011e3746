"""Predict new examples with an export; a separate program, because its caller does not import TensorFlow."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from perennial.base import documents
from perennial.base.devices import devices
from perennial.data.images import BadImage
from perennial.model.inference import image_inputs
from perennial.model.inference.image_inputs import ImageSource
from perennial.release.publishing import load


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Count the predictions of an export on the CPU: a GPU may be in use by a training."""
    devices.configure("cpu", [0])
    listed = documents.read_json(Path(job["examples"]))
    classifier = load.load(job["export"])
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
    return {
        "correct": correct,
        "refused": len(refused),
        "reason": min(refused, default=None),
        "unknown": unknown,
    }


def _images(file: Path, spans: Sequence[Sequence[int]]) -> Iterator[ImageSource]:
    with file.open("rb") as stream:
        for number, (_, size) in enumerate(spans):  # one after the other
            yield image_inputs.from_record(f"new example {number}", stream.read(size))
