"""What the model's answers show: which classes it takes for which, and where it was most wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.errors import DataError
from perennial.evaluation.predictions import Predictions
from perennial.images import Image
from perennial.records import manifest
from perennial.records.access import Records
from perennial.validation.thumbnails import Thumbnail, thumbnail


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


def matrix(answers: Predictions) -> NDArray[np.int64]:
    """Examples by label and prediction, [classes, classes]."""
    size = len(answers.classes)
    pairs = answers.labels * size + _predicted(answers)
    return np.bincount(pairs, minlength=size * size).reshape(size, size)


def confusions(answers: Predictions, most: int) -> list[Confusion]:
    """The most frequent ones."""
    counts, names = matrix(answers), answers.classes
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


def worst(answers: Predictions, records: Path, index: Path, most: int) -> list[Mistake]:
    """The mistakes that the model was surest of, those first, with the images of the records."""
    predicted, rows = _predicted(answers), np.arange(len(answers.labels))
    p, p_true = answers.probabilities[rows, predicted], answers.probabilities[rows, answers.labels]
    wrong = np.flatnonzero(predicted != answers.labels)
    chosen = wrong[np.argsort(-p[wrong], kind="stable")][:most]
    images = _images(answers, records, index, chosen.tolist())
    return [
        Mistake(
            number=number,
            true=answers.classes[answers.labels[number]],
            predicted=answers.classes[predicted[number]],
            p=float(p[number]),
            p_true=float(p_true[number]),
            image=image,
        )
        for number, image in zip(chosen.tolist(), images, strict=True)
    ]


def _predicted(answers: Predictions) -> NDArray[np.int64]:
    found: NDArray[np.int64] = answers.probabilities.argmax(axis=1)
    return found


def _images(answers: Predictions, folder: Path, index: Path, numbers: Sequence[int]) -> list[Thumbnail | None]:
    """The images of records, which may have been made anew or be gone since the model was scored."""
    try:
        records = Records(folder, index)
        if manifest.digest(folder) != answers.data:
            return [None] * len(numbers)
    except (DataError, OSError):
        return [None] * len(numbers)
    split = next((split for split in manifest.SPLITS if split == answers.split), None)
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
