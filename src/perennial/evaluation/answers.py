"""What a model says of a split: each example once, in the manifest's order, on one device or several."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.special import softmax

from perennial.config import Config
from perennial.config.names import Split
from perennial.errors import DataError
from perennial.evaluation import predict, scores
from perennial.evaluation.predict import Predict
from perennial.evaluation.predictions import Predictions
from perennial.evaluation.scores import NonFinite, Scores
from perennial.images.header import header
from perennial.models.saved import Description
from perennial.preprocessing import Pixels
from perennial.records import manifest, pipeline
from perennial.records.manifest import Manifest
from perennial.validation import integrity

Logits = tuple[NDArray[np.float32], NDArray[np.int64]]  # [N, classes], with the labels [N]
SHOWN = 3  # names in a message


@dataclass(frozen=True, kw_only=True)
class Answers:
    """A model's answers and what they are worth."""

    dataset: str
    predictions: Predictions
    scores: Scores


def answers(
    config: Config, split: Split, load: Callable[[], tuple[keras.Model, Description]], devices: Sequence[str]
) -> Answers:
    """The answers of the model that `load` gives to a split of the records.

    Raises:
        DataError: the records are not sound, the split is empty, or its classes or images are not the model's.
        NonFinite: a weight or a logit is NaN or infinite.
    """
    records = config.paths.records
    data = _records(config, split)
    model, description = load()
    refuse_non_finite(model)
    offset, classes = description.options.labels_offset, description.classes
    if classes != data.classes[offset:]:
        raise DataError(f"the model knows the classes {classes}, {records} has {data.classes[offset:]}")
    probabilities: list[NDArray[np.float32]] = []
    batches = pipeline.batches(
        records,
        data,
        split,
        description.pixels,
        batch_size=config.evaluate.batch_size,
        labels_offset=offset,
    )
    with pipeline.naming_shards(records, data), _naming_sizes(records, data, split, description.pixels):
        logits = predict.logits(_predictor(model, description, devices), batches)
        found = scores.score(
            _keeping(probabilities, logits), classes=len(classes), examples=data.splits[split].examples
        )
    predictions = Predictions(
        labels=found.labels,
        probabilities=np.concatenate(probabilities),
        classes=tuple(classes),
        split=split,
        data=manifest.digest(records),
        model=description.weights_sha256,
    )
    return Answers(dataset=data.dataset, predictions=predictions, scores=found)


def _keeping(probabilities: list[NDArray[np.float32]], batches: Iterable[Logits]) -> Iterator[Logits]:
    """The batches, whose probabilities are kept once they were found to be finite and scored."""
    for logits, labels in batches:
        yield logits, labels
        probabilities.append(softmax(logits, axis=1))


@contextmanager
def _naming_sizes(folder: Path, data: Manifest, split: Split, pixels: Pixels) -> Iterator[None]:
    """Lets what TensorFlow raises because of an image of another size than the model takes name the image."""
    try:
        yield
    except tf.errors.InvalidArgumentError:
        for shard in data.splits[split].shards:
            _require_sizes(folder / shard.file, pipeline.encoded(folder, shard)[1], pixels)
        raise


def _require_sizes(file: Path, images: Iterable[bytes], pixels: Pixels) -> None:
    for number, said in enumerate(map(header, images)):
        if said and (said.height, said.width) != (pixels.height or said.height, pixels.width or said.width):
            raise DataError(
                f"{file} record {number}: {said.width} x {said.height} pixels, the model takes "
                f"{pixels.width or 'any'} x {pixels.height or 'any'} (width x height); nothing was written; "
                "name a model of these records, or convert images of that size"
            )


def _records(config: Config, split: Split) -> Manifest:
    folder = config.paths.records
    known = manifest.load(folder).splits
    if split not in known:
        raise DataError(f"{folder} has no {split}, only {', '.join(known)}; nothing was scored or written")
    if not known[split].examples:
        raise DataError(f"{split} in {folder} has no examples, so there is no score; nothing was written")
    return integrity.require_valid(folder, (split,))


def refuse_non_finite(model: keras.Model) -> None:
    """Looks at the weights too: a ReLU may make a number of NaN again, and a score of that.

    Raises:
        NonFinite: a weight is NaN or infinite; names it.
    """
    bad = [weight.path for weight in model.weights if not np.isfinite(weight.numpy()).all()]
    if bad:
        more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise NonFinite(
            f"weights of the model are not finite: {', '.join(bad[:SHOWN])}{more}; its scores would mean "
            "nothing; nothing was written; train it again with a lower train.learning_rate"
        )


def _predictor(model: keras.Model, description: Description, devices: Sequence[str]) -> Predict:
    if len(devices) == 1:
        return predict.predictor(model, description.pixels)
    return predict.shared(predict.copies(model, description, devices), description.pixels)
