"""Score checkpoints: their weights or moving averages, in a model that is built only once."""

import math
from typing import NamedTuple

import keras
import tensorflow as tf
from pydantic import ValidationError

from perennial.base import files
from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.devices import devices
from perennial.base.errors import DataError
from perennial.data.records import manifest, pipeline
from perennial.data.records.label_map import LabelMap
from perennial.model.evaluation import inference, scoring
from perennial.model.evaluation.inference import Predict
from perennial.model.evaluation.scoring import ExampleScores
from perennial.model.evaluation.split import require_finite, require_split
from perennial.model.models import model_folder
from perennial.model.models.model_folder import Description
from perennial.model.training.snapshot import Snapshot


class ScoredCheckpoint(NamedTuple):
    """Scores of a checkpoint, and the digest of the weights that have them."""

    scores: ExampleScores
    weights_sha256: str


class _Prepared(NamedTuple):
    """A model before a checkpoint's weights are loaded, and the batches to score it on."""

    description: Description
    model: keras.Model
    predict: Predict
    batches: tf.data.Dataset


class CheckpointScorer:
    """Score checkpoints one after the other on a split, or on its first batches.

    Create it before anything uses a device. It uses no GPU unless `evaluate.devices` names one, because the
    training has reserved all memory of its own.
    """

    def __init__(self, config: Config, split: Split, max_batches: int | None) -> None:
        """Check the records."""
        chosen = config.evaluate.devices
        kind, numbers = devices.select("cpu:1" if chosen == "auto" else chosen, key="evaluate.devices")
        devices.disable_tf32()
        (self._device,) = devices.configure(kind, numbers[:1])
        self._records, self._split, self._memory_mb = config.paths.records, split, config.train.memory_mb
        self._data = require_split(self._records, split)
        self._digest = manifest.digest(self._records)
        self._batch_size, whole = config.evaluate.batch_size, self._data.splits[split].examples
        self.examples = whole if max_batches is None else min(whole, max_batches * self._batch_size)
        self.partial = self.examples < whole
        self._prepared: _Prepared | None = None

    def score(self, taken: Snapshot) -> ScoredCheckpoint:
        """Score a checkpoint in float32, as `evaluate` does; training in float32 has the same scores."""
        description = _description(taken)
        if description.data != self._digest:
            raise DataError(
                f"the training is on the records with manifest {description.data}, {self._records} has "
                f"{self._digest}; nothing was scored; restore those records, or name its params.yaml"
            )
        if self._prepared is None or self._prepared.description != description:
            self._prepared = self._prepare(description)
        prepared = self._prepared
        _restore(prepared.model, taken)
        require_finite(prepared.model)
        with tf.device(self._device), pipeline.naming_shards(self._records, self._data):
            logits = inference.batch_logits(prepared.predict, prepared.batches)
            scores = scoring.score(logits, classes=len(description.classes), examples=self.examples)
        return ScoredCheckpoint(scores, model_folder.weights_sha256(prepared.model))

    def _prepare(self, description: Description) -> _Prepared:
        with tf.device(self._device):
            model = description.build()
            predict = inference.predictor(model, description.pixels)
        batches = pipeline.batches(
            self._records,
            self._data,
            self._split,
            description.pixels,
            batch_size=self._batch_size,
            label_map=LabelMap.of(description.options),
            # TensorFlow discards the cache of a dataset that is not read to the end.
            cache_mb=0 if self.partial else self._memory_mb,
        ).take(math.ceil(self.examples / self._batch_size))
        return _Prepared(description, model, predict, batches)


def _description(taken: Snapshot) -> Description:
    try:
        return Description.model_validate_json(files.json_bytes(taken.facts["model"]))
    except (LookupError, ValidationError) as error:
        raise DataError(
            f"the checkpoint of step {taken.step} does not describe its model as this version of the program "
            "does; it was not scored; use the code that wrote it"
        ) from error


def _restore(model: keras.Model, taken: Snapshot) -> None:
    """Restore the weights of a checkpoint, then replace those that have an average by it."""
    values = {
        f"weights/{name}": value
        for group in ("weights", "averages")
        for name, value in taken.group(group).items()
    }
    Snapshot(step=taken.step, facts={}, values=values).restore({"weights": model.weights})
