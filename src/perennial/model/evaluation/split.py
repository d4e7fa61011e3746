"""Evaluate a model on a split of the records: predictions and scores, in manifest order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.special import softmax

from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.errors import DataError, listed
from perennial.data.images.header import header
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import columns, manifest, pipeline
from perennial.data.records.label_map import LabelMap
from perennial.data.records.manifest import Manifest
from perennial.data.validation import integrity
from perennial.model.evaluation import diagnostics, inference, scoring, slices
from perennial.model.evaluation.diagnostics import Reliability
from perennial.model.evaluation.predictions import Predictions
from perennial.model.evaluation.scoring import ExampleScores, NonFinite
from perennial.model.models.model_folder import Description

NAMED = 3  # weights in an error message


@dataclass(frozen=True, kw_only=True)
class SplitResult:
    """Predictions and scores of a model on a split."""

    dataset: str
    predictions: Predictions
    scores: ExampleScores

    def without(self, audit: NDArray[np.bool_]) -> Self:
        """The result with the scores on the other examples than these, of which no decision reads any."""
        kept, scores = ~audit, self.scores
        judged = replace(
            scores, labels=scores.labels[kept], predicted=scores.predicted[kept], losses=scores.losses[kept],
            within_top=scores.within_top[kept],
        )  # fmt: skip
        return replace(self, predictions=replace(self.predictions, audit=audit), scores=judged)

    def reliability(self, bins: int) -> Reliability:
        """Reliability of the predictions in equal bins of probability."""
        judged, _ = self.predictions.judged()
        probabilities = judged.probabilities
        correct = probabilities.argmax(axis=1) == judged.labels
        return diagnostics.reliability(probabilities.max(axis=1), correct, bins=bins)


def evaluate(
    config: Config, split: Split, load: Callable[[], tuple[keras.Model, Description]], devices: Sequence[str]
) -> SplitResult:
    """Evaluate the model that `load` returns on a split of the records, on one device or several.

    Raises:
        DataError: the records are not valid, the split is empty, or its classes or images are not the model's.
        NonFinite: a weight or a logit is NaN or infinite.
    """
    folder = config.paths.records
    data = require_split(folder, split)
    model, description = load()
    require_finite(model)
    label_map, classes = LabelMap.of(description.options), description.classes
    if classes != (known := label_map.classes(data)):
        raise DataError(f"the model has the classes {classes}, {folder} has {known}")
    examples = data.splits[split].examples
    probabilities = np.empty((examples, len(classes)), np.float32)
    batches = pipeline.batches(
        folder, data, split, description.pixels, batch_size=config.evaluate.batch_size, label_map=label_map
    )
    with pipeline.naming_shards(folder, data), _naming_sizes(folder, data, split, description.pixels):
        logits = inference.logits(inference.on_devices(model, description, devices), batches)
        scores = scoring.score(_fill(probabilities, logits), classes=len(classes), examples=examples)
    further = columns.read(folder, split)
    predictions = Predictions(
        labels=scores.labels,
        probabilities=probabilities,
        classes=tuple(classes),
        split=split,
        data=manifest.digest(folder),
        split_digest=data.split_digest(split),
        model=description.weights_sha256,
        slices=slices.find(further.names, further.rows) if further else (),
    )
    return SplitResult(dataset=data.dataset, predictions=predictions, scores=scores)


def require_finite(model: keras.Model) -> None:
    """Check that the weights are finite; the logits do not show it, because a ReLU can turn NaN into a number.

    Raises:
        NonFinite: a weight is NaN or infinite; names it.
    """
    bad = [weight.path for weight in model.weights if not np.isfinite(weight.numpy()).all()]
    if bad:
        raise NonFinite(
            f"weights of the model are not finite: {listed(bad, NAMED)}; its scores would mean "
            "nothing; nothing was written; train it again with a lower train.learning_rate"
        )


def require_split(folder: Path, split: Split) -> Manifest:
    """The manifest of a record folder with a valid split that has examples.

    Raises:
        DataError: there is no such split, it is empty, or it is not valid.
    """
    known = manifest.load(folder).splits
    if split not in known:
        raise DataError(f"{folder} has no {split}, only {', '.join(known)}; nothing was scored or written")
    if not known[split].examples:
        raise DataError(f"{split} in {folder} has no examples, so there is no score; nothing was written")
    return integrity.require_valid(folder, (split,))


def _fill(
    probabilities: NDArray[np.float32], batches: Iterable[inference.Logits]
) -> Iterator[inference.Logits]:
    """Pass batches on to scoring, which checks them, then store their probabilities."""
    row = 0
    for logits, labels in batches:
        yield logits, labels
        probabilities[row : row + len(labels)] = softmax(logits, axis=1)
        row += len(labels)


@contextmanager
def _naming_sizes(folder: Path, data: Manifest, split: Split, pixels: ImageSpec) -> Iterator[None]:
    """If TensorFlow fails because an image has another size than the model takes, name the image."""
    try:
        yield
    except tf.errors.InvalidArgumentError:
        for shard in data.splits[split].shards:
            _require_sizes(folder / shard.file, pipeline.encoded(folder, shard)[1], pixels)
        raise


def _require_sizes(file: Path, images: Iterable[bytes], pixels: ImageSpec) -> None:
    for number, found in enumerate(map(header, images)):
        if found and (found.height, found.width) != (
            pixels.height or found.height,
            pixels.width or found.width,
        ):
            raise DataError(
                f"{file} record {number}: {found.width} x {found.height} pixels, the model takes "
                f"{pixels.width or 'any'} x {pixels.height or 'any'} (width x height); nothing was written; "
                "name a model of these records, or convert images of that size"
            )
