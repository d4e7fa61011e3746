"""Evaluate a model on a split of the records: predictions and scores, in manifest order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import keras
import numpy as np
import scipy
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.choices import UNKNOWN, Split
from perennial.base.config import Config
from perennial.base.errors import DataError, listed
from perennial.data.images import decode
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import columns, manifest, pipeline
from perennial.data.records.manifest import Manifest
from perennial.data.validation import integrity
from perennial.model.evaluation import confidence, diagnostics, inference, scoring
from perennial.model.evaluation.confidence import Answered
from perennial.model.evaluation.diagnostics import Reliability
from perennial.model.evaluation.predictions import Predictions, find_slices
from perennial.model.evaluation.scoring import ExampleScores, MultilabelScores, NonFinite, Scores
from perennial.model.models.model_folder import Abstention, Confidence, Description

NAMED = 3  # weights in an error message
NOTHING = Confidence()


@dataclass(frozen=True, kw_only=True)
class SplitResult:
    """Predictions and scores of a model on a split."""

    dataset: str
    predictions: Predictions
    scores: Scores
    confidence: Confidence = NOTHING  # that the model has from its validation split
    validation: Answered | None = None  # on which the threshold of `confidence` was chosen here
    before: NDArray[np.float32] | None = None  # [N], largest probabilities without it

    def without(self, audit: NDArray[np.bool_]) -> Self:
        """The result with the scores on the other examples than these, of which no decision reads any."""
        before = None if self.before is None else self.before[~audit]
        predictions = replace(self.predictions, audit=audit)
        return replace(self, predictions=predictions, scores=self.scores.at(~audit), before=before)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the answer on each example is its label, or exactly its labels."""
        return self.predictions.judged().right

    def reliability(self, bins: int) -> Reliability:
        """Reliability of the predictions in equal bins of probability; of several labels, of every class."""
        judged = self.predictions.judged()
        if judged.multilabel:
            return diagnostics.reliability(judged.probabilities.ravel(), judged.labels.ravel() == 1, bins=bins)
        return self._reliability(judged.p, bins)

    def calibration(self, bins: int) -> dict[str, float]:
        """The temperature, and the ECE without it; empty for a model that was not calibrated."""
        temperature = self.confidence.temperature
        if temperature is None or self.before is None:
            return {}
        return {"temperature": temperature, "ece_before": self._reliability(self.before, bins).ece}

    def abstention(self) -> dict[str, Any] | None:
        """To which images the model says unknown, as `results.AbstentionMetrics`; None if it answers all."""
        if (chosen := self.confidence.abstention) is None:
            return None
        judged = self.predictions.judged()
        found = confidence.answered(judged.p, judged.predicted == judged.labels, chosen.threshold)
        validation = {"validation": asdict(self.validation)} if self.validation else {}
        return {
            **chosen.model_dump(), **asdict(found), "coverage": found.coverage, "error": found.error,
            **validation,
        }  # fmt: skip

    def _reliability(self, probabilities: NDArray[np.float32], bins: int) -> Reliability:
        judged = self.predictions.judged()
        return diagnostics.reliability(probabilities, judged.predicted == judged.labels, bins=bins)


def evaluate(
    config: Config,
    split: Split,
    load: Callable[[], tuple[keras.Model, Description]],
    devices: Sequence[str],
    *,
    fit: bool = True,
    mirror: bool = False,
) -> SplitResult:
    """Evaluate the model that `load` returns on a split of the records, on one device or several.

    `fit`: fit its confidence on the validation split if the parameters say so; that of an export is fixed.
    `mirror`: average over mirror images, as an export may do without it.
    """
    folder = config.paths.records
    data, options = require_split(folder, split), config.evaluate
    calibrates = fit and data.task == "multiclass" and (options.calibrate or options.max_error is not None)
    if calibrates:
        _require_validation(config)
    model, description = load()
    description = description.model_copy(update={"mirror": description.mirror or mirror})
    require_finite(model)
    label_map, classes = pipeline.LabelMap(description.options.labels_offset), description.classes
    if classes != (known := label_map.classes(data)):
        raise DataError(f"the model has the classes {classes}, {folder} has {known}")
    if description.task != data.task:
        raise DataError(f"the model is {description.task}, {folder} is {data.task} (dataset.task)")
    predict = inference.on_devices(model, description, devices)
    fitted, validation = description.confidence, None
    if data.task == "multilabel" and (fit or fitted.thresholds is None):
        fitted = _with_thresholds(config, data, description, predict)
    elif calibrates:
        fitted, validation = _fitted(config, data, description, predict)
    scores, probabilities, before = _scored(config, data, split, description, predict, fitted)
    thresholds, further = fitted.thresholds, columns.read(folder, split)
    predictions = Predictions(
        labels=scores.labels if thresholds is None else scores.labels.astype(np.int8),
        probabilities=probabilities,
        thresholds=None if thresholds is None else np.array(thresholds, np.float32),
        classes=tuple(classes),
        split=split,
        data=manifest.digest(folder),
        split_digest=data.split_digest(split),
        model=description.weights_sha256,
        slices=find_slices(further.names, further.rows) if further else (),
    )
    return SplitResult(
        dataset=data.dataset, predictions=predictions, scores=scores, confidence=fitted, before=before,
        validation=validation,
    )  # fmt: skip


def require_finite(model: keras.Model) -> None:
    """Check that the weights are finite; logits do not show it, because a ReLU can turn NaN into a number."""
    bad = [weight.path for weight in model.weights if not np.isfinite(weight.numpy()).all()]
    if bad:
        raise NonFinite(
            f"weights of the model are not finite: {listed(bad, NAMED)}; its scores would mean "
            "nothing; nothing was written; train it again with a lower train.learning_rate"
        )


def require_split(folder: Path, split: Split) -> Manifest:
    """The manifest of a record folder with a valid split that has examples."""
    known = manifest.load(folder).splits
    if split not in known:
        raise DataError(f"{folder} has no {split}, only {', '.join(known)}; nothing was scored or written")
    if not known[split].examples:
        raise DataError(f"{split} in {folder} has no examples, so there is no score; nothing was written")
    return integrity.require_valid(folder, (split,))


def _require_validation(config: Config) -> None:
    """Check that the records have a valid validation split that is large enough."""
    folder, most = config.paths.records, config.evaluate.max_error
    data = manifest.load(folder)
    known = data.splits
    if "validation" not in known or not known["validation"].examples:
        raise DataError(
            f"evaluate.calibrate and max_error need validation examples, and {folder} has none; nothing was "
            "written; set dataset.validation_fraction, or calibrate: false and max_error: null"
        )
    if most is not None:
        if UNKNOWN in data.classes:
            raise DataError(
                f"evaluate.max_error answers {UNKNOWN} where the model is not sure, but {folder} has a class "
                "of that name; nothing was written; give the class another name, or set max_error: null"
            )
        confidence.require_enough(known["validation"].examples, most)
    integrity.require_valid(folder, ("validation",))


def _scored(
    config: Config, data: Manifest, split: Split, description: Description, predict: inference.Predict,
    fitted: Confidence,
) -> tuple[Scores, NDArray[np.float32], NDArray[np.float32] | None]:  # fmt: skip
    """Scores, probabilities [N, classes], and the largest ones [N] without a temperature of one label."""
    examples, classes = data.splits[split].examples, len(description.classes)
    logits = _logits(config, data, split, description, predict)
    if data.task == "multilabel":
        several = cast(MultilabelScores, scoring.score(logits, classes=classes, examples=examples))
        return several, several.probabilities, None
    probabilities, before = np.empty((examples, classes), np.float32), np.empty(examples, np.float32)
    filled = _fill(probabilities, logits, before, fitted.factor)
    return scoring.score(filled, classes=classes, examples=examples), probabilities, before


def _logits(
    config: Config, data: Manifest, split: Split, description: Description, predict: inference.Predict
) -> Iterator[inference.Logits]:
    """Yield the logits of a model for a split, with labels; errors name the image."""
    folder, pixels = config.paths.records, description.pixels
    batches = pipeline.batches(
        folder, data, split, pixels, batch_size=config.evaluate.batch_size,
        label_map=pipeline.LabelMap(description.options.labels_offset),
    )  # fmt: skip
    with pipeline.naming_shards(folder, data), _naming_sizes(folder, data, split, pixels):
        yield from inference.batch_logits(predict, batches)


def _fitted(
    config: Config, data: Manifest, description: Description, predict: inference.Predict
) -> tuple[Confidence, Answered | None]:
    """Fit the confidence of a model on the validation split; also what its threshold does there, if any."""
    examples = data.splits["validation"].examples
    every = np.empty((examples, len(description.classes)), np.float32)
    logits = _logits(config, data, "validation", description, predict)
    scores = cast(ExampleScores, scoring.score(_keep(every, logits), classes=every.shape[1], examples=examples))
    temperature = confidence.fit_temperature(every, scores.labels) if config.evaluate.calibrate else None
    fitted, most = Confidence(temperature=temperature), config.evaluate.max_error
    if most is None:
        return fitted, None
    if fitted.factor is not None:
        every *= fitted.factor
    sure, correct = scipy.special.softmax(every, axis=1).max(axis=1), scores.predicted == scores.labels
    threshold = confidence.fit_threshold(sure, correct, most)
    chosen = Abstention(max_error=most, threshold=threshold)
    return fitted.model_copy(update={"abstention": chosen}), confidence.answered(sure, correct, threshold)


def _with_thresholds(
    config: Config, data: Manifest, description: Description, predict: inference.Predict
) -> Confidence:
    """Choose the thresholds of a model with several labels an image on the validation split."""
    names, part, rule = description.classes, data.splits.get("validation"), config.evaluate.threshold
    labels, probabilities = np.zeros((0, len(names)), np.uint8), np.zeros((0, len(names)), np.float32)
    if part is not None and part.examples and not isinstance(rule, float | int):
        integrity.require_valid(config.paths.records, ("validation",))
        logits = _logits(config, data, "validation", description, predict)
        scores = cast(MultilabelScores, scoring.score(logits, classes=len(names), examples=part.examples))
        labels, probabilities = scores.labels, scores.probabilities
    return Confidence(thresholds=confidence.choose_thresholds(labels, probabilities, rule, names))


def _keep(every: NDArray[np.float32], batches: Iterable[inference.Logits]) -> Iterator[inference.Logits]:
    """Pass batches on to scoring, which checks them, then store their logits."""
    row = 0
    for logits, labels in batches:
        yield logits, labels
        every[row : row + len(labels)] = logits
        row += len(labels)


def _fill(
    probabilities: NDArray[np.float32],
    batches: Iterable[inference.Logits],
    before: NDArray[np.float32],
    factor: np.float32 | None,
) -> Iterator[inference.Logits]:
    """Multiply logits by a factor, pass them on to scoring, then store their probabilities.

    `before` gets the largest probability of each example without the factor.
    """
    row = 0
    for logits, labels in batches:
        scaled = logits if factor is None else logits * factor
        rows = slice(row, row + len(labels))
        row = rows.stop
        yield scaled, labels
        probabilities[rows] = scipy.special.softmax(scaled, axis=1)
        unscaled = probabilities[rows] if factor is None else scipy.special.softmax(logits, axis=1)
        before[rows] = unscaled.max(axis=1)


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
    for number, each in enumerate(map(decode.header, images)):
        if each and (each.height, each.width) != (pixels.height or each.height, pixels.width or each.width):
            raise DataError(
                f"{file} record {number}: {each.width} x {each.height} pixels, the model takes "
                f"{pixels.width or 'any'} x {pixels.height or 'any'} (width x height); nothing was written; "
                "name a model of these records, or convert images of that size"
            )
