"""Likely label errors: examples for which a confident model predicts another class; no TensorFlow.

Source: C. Northcutt, L. Jiang and I. Chuang, Confident Learning, JAIR 70, 2021.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import Split
from perennial.base.errors import printable
from perennial.data.records import manifest, random_access
from perennial.data.tfrecord import example, framing
from perennial.model.evaluation import average_precision, intervals
from perennial.model.evaluation.predictions import Predictions

LISTED = 500


def find(labels: NDArray[np.int64], probabilities: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Examples whose label is probably wrong and what it should be, the most probable first.

    By labels [N] and probabilities [N, classes] of a model that never saw the examples.

    A class is confident about an example if its probability is at least the mean over the examples with that
    label. An example is suspect if another class than its label is confident, and is the predicted one.
    """
    classes = probabilities.shape[1]
    own = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    counts = np.bincount(labels, minlength=classes)
    means = np.bincount(labels, own, minlength=classes) / np.maximum(counts, 1)
    thresholds = np.where(counts > 0, means, np.inf)  # a class without examples is never confident
    predicted = probabilities.argmax(axis=1)
    best = probabilities[np.arange(len(labels)), predicted].astype(np.float64)
    numbers = np.flatnonzero((predicted != labels) & (best >= thresholds[predicted]))
    # By the margin between the two classes; ties by number.
    order = numbers[np.argsort((own - best)[numbers], kind="stable")]
    return list(zip(order.tolist(), predicted[order].tolist(), strict=True))


def find_labels(predictions: Predictions) -> list[tuple[int, int]]:
    """Likely missing and superfluous labels of an image: example and class, the most probable first.

    As `find`, for each class by itself: a label that is there, or is not, is suspect if the model says the
    opposite at its threshold, and is as sure of that as it is on average where the opposite is recorded.
    """
    labels, p = predictions.labels != 0, predictions.probabilities.astype(np.float64)
    counts = labels.sum(axis=0)
    there = (p * labels).sum(axis=0) / np.maximum(counts, 1)
    absent = ((1 - p) * ~labels).sum(axis=0) / np.maximum(len(p) - counts, 1)
    predicted = predictions.predicted != 0
    missing = ~labels & predicted & (p >= np.where(counts > 0, there, np.inf))
    superfluous = labels & ~predicted & (1 - p >= np.where(counts < len(p), absent, np.inf))
    found = np.argwhere(missing | superfluous)
    own = np.where(labels, p, 1 - p)[tuple(found.T)]  # of what is recorded
    return [(example, index) for example, index in found[np.argsort(own, kind="stable")].tolist()]


def above_chance(predictions: Predictions) -> bool:
    """Whether the interval of the score lies above the score of a model that ignores the image."""
    labels = predictions.labels
    if predictions.multilabel:
        low, _ = average_precision.interval(labels, predictions.probabilities, intervals.LEVEL)
        return low > average_precision.prior(labels)
    low, _ = intervals.share(int(predictions.right.sum()), len(labels))
    return low > float(np.bincount(labels).max() / len(labels))


def described(folder: Path, predictions: Predictions, known: Mapping[int, str] | None = None) -> dict[str, Any]:
    """The content of label_errors.json: the count, and the first 500 with their image names (`known`: of all).

    A model that is not clearly better than chance says nothing about labels: none is listed. Examples that no
    decision reads are left out. Of several labels an image, `kind` is missing or superfluous.
    """
    predictions = predictions.judged()
    labels, several, above = predictions.labels, predictions.multilabel, above_chance(predictions)
    found: list[tuple[int, int]] = []
    if above:
        found = find_labels(predictions) if several else find(labels, predictions.probabilities)
    numbers = [int(predictions.numbers[example]) for example, _ in found[:LISTED]]
    names = known or dict(_names(folder, predictions, numbers))
    superfluous = sum(int(labels[pair]) for pair in found) if several else 0
    return {
        **{name: getattr(predictions, name) for name in ("split", "data", "model")},
        "examples": len(labels),
        **({"missing": len(found) - superfluous, "superfluous": superfluous} if several else {}),
        "above_chance": above,
        "likely": len(found),
        "listed": [
            {"record": record, "image": names.get(record) or None, **_facts(predictions, *pair)}
            for record, pair in zip(numbers, found, strict=False)
        ],
    }


def _facts(predictions: Predictions, example: int, index: int) -> dict[str, Any]:
    """What is recorded of an example, and what the model says of it; `index` is as `find` gives it."""
    names, label, p = predictions.classes, predictions.labels[example], predictions.probabilities[example]
    if predictions.multilabel:
        kind = "superfluous" if label[index] else "missing"
        return {"kind": kind, "label": names[index], "p": round(float(p[index]), 4)}
    return {
        "label": names[label], "suggested": names[index],
        "p_label": round(float(p[label]), 4), "p_suggested": round(float(p[index]), 4),
    }  # fmt: skip


def _names(folder: Path, predictions: Predictions, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The number and image file name of each record, if it has a name."""
    first, wanted = 0, sorted(set(numbers))
    for shard in manifest.load(folder).splits[cast(Split, predictions.split)].shards:
        own = [number for number in wanted if first <= number < first + shard.examples]
        if own:
            file = folder / shard.file
            with file.open("rb") as stream:
                spans, _ = framing.scan(stream, file.stat().st_size)
            for number in own:
                fields, _ = example.parse(random_access.data(file, *spans[number - first].tolist()))
                yield number, printable(fields.filename or "")
        first += shard.examples
