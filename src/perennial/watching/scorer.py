"""The scores of checkpoints: their weights, averaged where they are, in a model that is built once."""

import math
from collections.abc import Set
from dataclasses import dataclass

import keras
import tensorflow as tf
from pydantic import ValidationError

from perennial import files
from perennial.config import Config
from perennial.config.names import Split
from perennial.errors import DataError
from perennial.evaluation import predict, scores
from perennial.evaluation.answers import refuse_non_finite
from perennial.evaluation.predict import Predict
from perennial.evaluation.scores import Scores
from perennial.models import saved
from perennial.models.saved import Description
from perennial.records import manifest, pipeline
from perennial.runtime import devices
from perennial.training.snapshot import Snapshot
from perennial.validation import integrity


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A snapshot's scores and its model, whose weights stay until another is scored."""

    scores: Scores
    model: keras.Model
    description: Description


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A model without the weights that it is to get, and what it is to be asked."""

    description: Description
    model: keras.Model
    predict: Predict
    batches: tf.data.Dataset


class Scorer:
    """Scores one snapshot after the other on a split, or on the first batches of it.

    Has to be made before anything uses a device. It takes no GPU unless `evaluate.devices` names one: the
    training has taken all memory of its own.
    """

    def __init__(self, config: Config, split: Split, max_batches: int | None) -> None:
        """Checks the records.

        Raises:
            ConfigError: the device is not there.
            DataError: the records are not sound.
        """
        asked = config.evaluate.devices
        kind, numbers = devices.select("cpu:1" if asked == "auto" else asked, key="evaluate.devices")
        devices.disable_tf32()
        (self._device,) = devices.configure(kind, numbers[:1])
        self._records, self._split, self._memory_mb = config.paths.records, split, config.train.memory_mb
        self._data = integrity.require_valid(self._records, (split,))
        self._digest = manifest.digest(self._records)
        self._batch_size, whole = config.evaluate.batch_size, self._data.splits[split].examples
        self.examples = whole if max_batches is None else min(whole, max_batches * self._batch_size)
        self.partial = self.examples < whole
        self._ready: _Ready | None = None

    def score(self, taken: Snapshot) -> Scored:
        """The scores of a snapshot, as its training would find them.

        Raises:
            DataError: the training was on other records, or with another version of the program; or a shard
                was changed since it was checked.
            NonFinite: a weight or a logit is NaN or infinite.
        """
        description = _description(taken)
        if description.data != self._digest:
            raise DataError(
                f"the training is on the records with manifest {description.data}, {self._records} has "
                f"{self._digest}; nothing was scored; bring its records back, or name its params.yaml"
            )
        if self._ready is None or self._ready.description != description:
            self._ready = self._made_ready(description)
        ready = self._ready
        _restore(ready.model, taken)
        refuse_non_finite(ready.model)
        with tf.device(self._device), pipeline.naming_shards(self._records, self._data):
            answers = predict.logits(ready.predict, ready.batches)
            found = scores.score(answers, classes=len(description.classes), examples=self.examples)
        digest = saved.weights_sha256(ready.model)
        return Scored(
            scores=found,
            model=ready.model,
            description=description.model_copy(update={"weights_sha256": digest}),
        )

    def _made_ready(self, description: Description) -> _Ready:
        with tf.device(self._device):
            model = description.build()
            asked = predict.predictor(model, description.pixels)
        batches = pipeline.batches(
            self._records,
            self._data,
            self._split,
            description.pixels,
            batch_size=self._batch_size,
            labels_offset=description.options.labels_offset,
            # TensorFlow keeps nothing of what is not read to its end.
            cache_mb=0 if self.partial else self._memory_mb,
        ).take(math.ceil(self.examples / self._batch_size))
        return _Ready(description=description, model=model, predict=asked, batches=batches)


def _description(taken: Snapshot) -> Description:
    try:
        return Description.model_validate_json(files.json_bytes(taken.facts["model"]))
    except (LookupError, ValidationError) as error:
        raise DataError(
            f"the checkpoint of step {taken.step} does not describe its model as this version of the program "
            "does; it was not scored; watch it with the code that it was made with"
        ) from error


def _restore(model: keras.Model, taken: Snapshot) -> None:
    """Gives a model the weights of a snapshot, then their averages to those that have one."""
    weights = {name: value for name, value in taken.values.items() if name.startswith("weights/")}
    Snapshot(step=taken.step, facts={}, values=weights).restore({"weights": model.weights})
    averages = taken.group("averages")
    for weight, name in zip(_averaged(model, averages.keys()), averages, strict=True):
        weight.assign(averages[name])


def _averaged(model: keras.Model, names: Set[str]) -> list[keras.Variable]:
    """The weights that averages of these names are of."""
    paths = {weight.path: weight for weight in model.weights}
    if names <= paths.keys():
        return [paths[name] for name in names]
    # Those without a name of their own are numbered in the order of the weights, the first without a number.
    if len(names) != len(model.trainable_weights):
        raise DataError(
            f"the checkpoint has averages of {len(names)} of {len(model.trainable_weights)} weights and does "
            "not say of which; it was not scored"
        )
    return [model.trainable_weights[int(name.partition("#")[2] or 1) - 1] for name in names]
