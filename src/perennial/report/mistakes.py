"""Which classes the model confuses, and the wrong predictions that it was most confident of."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array

from perennial.config.choices import SPLITS, Split
from perennial.errors import DataError
from perennial.evaluation.predictions import TopPredictions
from perennial.images import Image
from perennial.records import manifest
from perennial.records.random_access import Records
from perennial.validation.html import Thumbnail, thumbnail


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """An example with a wrong prediction."""

    number: int  # of the record in its split
    true: str
    predicted: str
    p: float  # of the predicted class, 0..1
    p_true: float
    image: Thumbnail | None  # None if the records are not those that were scored


@dataclass(frozen=True, kw_only=True)
class ClassPair:
    """A class that the model takes for another one."""

    true: str
    predicted: str
    examples: int
    share: float  # of the true class's examples, 0..1


def most_confused(counts: coo_array, names: Sequence[str], most: int) -> list[ClassPair]:
    """The pairs of classes with the most mistakes, the largest first."""
    wrong, per_class = np.flatnonzero(counts.row != counts.col), counts.sum(axis=1)
    largest = wrong[np.argsort(-counts.data[wrong], kind="stable")][:most]
    return [
        ClassPair(
            true=names[counts.row[entry]],
            predicted=names[counts.col[entry]],
            examples=int(counts.data[entry]),
            share=float(counts.data[entry] / per_class[counts.row[entry]]),
        )
        for entry in largest
    ]


def most_confident(predictions: TopPredictions, records: Path, index: Path, most: int) -> list[Mistake]:
    """The mistakes with the highest probability, the highest first, with the images of the records."""
    wrong = np.flatnonzero(predictions.predicted != predictions.labels)
    chosen = wrong[np.argsort(-predictions.p[wrong], kind="stable")][:most].tolist()
    return [
        Mistake(
            number=number,
            true=predictions.classes[predictions.labels[number]],
            predicted=predictions.classes[predictions.predicted[number]],
            p=float(predictions.p[number]),
            p_true=float(predictions.p_true[number]),
            image=image,
        )
        for number, image in zip(chosen, _images(predictions, records, index, chosen), strict=True)
    ]


def _images(
    predictions: TopPredictions, folder: Path, index: Path, numbers: Sequence[int]
) -> list[Thumbnail | None]:
    """Images of records, which may have been converted again or removed since the model was scored."""
    try:
        records = Records(folder, index)
        if manifest.digest(folder) != predictions.data:
            return [None] * len(numbers)
    except (DataError, OSError):
        return [None] * len(numbers)
    split = next((split for split in SPLITS if split == predictions.split), None)
    return [_image(records, number, split) for number in numbers]


def _image(records: Records, number: int, split: Split | None) -> Thumbnail | None:
    try:
        found = records.record(number, split)
    except DataError:
        return None
    fields, encoded = found.fields, found.encoded
    if fields is None or encoded is None:
        return None
    return thumbnail(Image(encoded, fields.format, fields.height, fields.width))
