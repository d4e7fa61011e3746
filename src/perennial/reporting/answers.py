"""What the model's answers show: which classes it takes for which, and where it was most wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.config.names import SPLITS
from perennial.errors import DataError
from perennial.evaluation import calibration, plots, predictions
from perennial.evaluation.calibration import Reliability
from perennial.images import Image
from perennial.records import manifest
from perennial.records.random_access import Records
from perennial.reporting.figures import Matrix
from perennial.reporting.outcome import Metrics
from perennial.validation.html import Thumbnail, thumbnail


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What the scored model said of each example of a split, without all that it did not say: arrays [N]."""

    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    p: NDArray[np.float32]  # of the predicted class, 0..1
    p_true: NDArray[np.float32]
    reliability: Reliability
    classes: tuple[str, ...]
    split: str
    data: str  # digest of the manifest


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """An example that the model took for another class."""

    number: int  # of the record in its split
    true: str
    predicted: str
    p: float  # of the predicted class, 0..1
    p_true: float
    image: Thumbnail | None  # None where the records are not those that were scored


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """A class that the model takes for another one."""

    true: str
    predicted: str
    examples: int
    share: float  # of the true class's examples, 0..1


def read(file: Path, metrics: Metrics, *, bins: int) -> Answers:
    """The answers behind the scores, their reliability in so many intervals.

    Raises:
        DataError: the file is not there, holds no answers, or those of another model or to other data.
    """
    found = predictions.read(file)
    if (found.data, found.model) != (metrics.data, metrics.model):
        raise DataError(
            f"{file} is of another model or other data than the scores; `dvc repro evaluate` makes it"
        )
    labels, probabilities = found.labels, found.probabilities
    if probabilities.shape != (len(labels), len(found.classes)) or not probabilities.size:
        raise DataError(f"{file} holds no answers to tell of; `dvc repro -f evaluate` makes it anew")
    predicted, rows = probabilities.argmax(axis=1), np.arange(len(labels))
    return Answers(
        labels=labels,
        predicted=predicted,
        p=probabilities[rows, predicted],
        p_true=probabilities[rows, labels],
        reliability=calibration.reliability(probabilities, labels, bins=bins),
        classes=found.classes,
        split=found.split,
        data=found.data,
    )


def matrix(answers: Answers) -> Matrix:
    """Examples by class and prediction; of many classes some share a name that is none of theirs."""
    counts = _counts(answers)
    places, names = plots.most_confused(counts, answers.classes)
    return Matrix(counts=plots.grouped(counts, places), names=tuple(names))


def confusions(answers: Answers, most: int) -> list[Confusion]:
    """The most frequent ones."""
    counts, names = _counts(answers), answers.classes
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    places = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [
        Confusion(
            true=names[row],
            predicted=names[column],
            examples=int(wrong[row, column]),
            share=float(wrong[row, column] / counts[row].sum()),
        )
        for row, column in places
        if wrong[row, column]
    ]


def worst(answers: Answers, records: Path, index: Path, most: int) -> list[Mistake]:
    """The mistakes that the model was surest of, those first, with the images of the records."""
    wrong = np.flatnonzero(answers.predicted != answers.labels)
    chosen = wrong[np.argsort(-answers.p[wrong], kind="stable")][:most].tolist()
    return [
        Mistake(
            number=number,
            true=answers.classes[answers.labels[number]],
            predicted=answers.classes[answers.predicted[number]],
            p=float(answers.p[number]),
            p_true=float(answers.p_true[number]),
            image=image,
        )
        for number, image in zip(chosen, _images(answers, records, index, chosen), strict=True)
    ]


def _counts(answers: Answers) -> NDArray[np.int64]:
    """Examples by label and prediction, [classes, classes]."""
    size = len(answers.classes)
    pairs = answers.labels * size + answers.predicted
    return np.bincount(pairs, minlength=size * size).reshape(size, size)


def _images(answers: Answers, folder: Path, index: Path, numbers: Sequence[int]) -> list[Thumbnail | None]:
    """The images of records, which may have been made anew or be gone since the model was scored."""
    try:
        records = Records(folder, index)
        if manifest.digest(folder) != answers.data:
            return [None] * len(numbers)
    except (DataError, OSError):
        return [None] * len(numbers)
    split = next((split for split in SPLITS if split == answers.split), None)
    images: list[Thumbnail | None] = []
    for number in numbers:
        try:
            found = records.record(number, split)
        except DataError:
            images.append(None)
            continue
        fields, encoded = found.fields, found.encoded
        if fields is None or encoded is None:
            images.append(None)
        else:
            images.append(thumbnail(Image(encoded, fields.format, fields.height, fields.width)))
    return images
