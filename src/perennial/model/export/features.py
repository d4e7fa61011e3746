"""What an export computes to find drift: random features of its penultimate layer, and an image's brightness.

The distance between the means of two sets of random Fourier features (Rahimi and Recht 2007) estimates the
maximum mean discrepancy of a Gaussian kernel. The graph draws their weights from a fixed seed.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.data.images import BRIGHTNESS_BINS
from perennial.data.preprocessing import photographs
from perennial.data.records import pipeline
from perennial.data.records.manifest import Manifest
from perennial.model import models, tasks
from perennial.model.export import reference
from perennial.model.export.reference import FEATURES, LEAST_IMAGES, Reference
from perennial.model.models.model_folder import Description

WEIGHTS_SEED, OFFSETS_SEED = (256, 1), (256, 2)  # of a counter-based generator: the same numbers everywhere
WIDEST = 8192  # values of a penultimate layer; wider ones would need random weights of more than 8 MB
PAIRED = 1000  # images whose distances give the bandwidth
SAMPLED = 256  # pixels of a side that are enough for the mean brightness
BATCH = 16  # images
TRANSPARENT = (keras.layers.BatchNormalization, keras.layers.Activation)  # may follow the layer of the logits


class Penultimate(NamedTuple):
    """The tensor that the layer of the logits takes; the logits themselves where no such layer is found."""

    tensor: keras.KerasTensor
    layer: str  # that makes it


def penultimate(model: keras.Model) -> Penultimate:
    """Follow the logits back to the last dense layer or convolution, and return what it takes."""
    logits = tensor = models.logits(model.output)
    own = Penultimate(logits, logits._keras_history.operation.name)  # noqa: SLF001 - no public way to the graph
    while True:
        operation, node, _ = tensor._keras_history  # noqa: SLF001
        taken = operation._inbound_nodes[node].input_tensors  # noqa: SLF001
        if len(taken) != 1 or isinstance(operation, keras.Model):
            return own
        (before,) = taken
        if isinstance(operation, keras.layers.Dense | keras.layers.Conv2D):
            maker, width = before._keras_history.operation, before.shape[-1]  # noqa: SLF001
            at_input = isinstance(maker, keras.layers.InputLayer)
            return own if at_input or width > WIDEST else Penultimate(before, maker.name)
        if getattr(operation, "weights", None) and not isinstance(operation, TRANSPARENT):
            return own
        tensor = before


class Values(NamedTuple):
    """What is measured of N images, tensors or arrays."""

    penultimate: Any  # float32 [N, width]
    logits: Any  # [N, classes]
    brightness: Any  # float32 [N], mean of all pixels, 0..255


class Measured:
    """A model from encoded images to the values in which drift shows."""

    def __init__(self, model: keras.Model, description: Description) -> None:
        self.layer = penultimate(model)
        self.width = int(self.layer.tensor.shape[-1])
        self._pixels, self._mirrors = description.pixels, description.mirror
        outputs = [self.layer.tensor, models.logits(model.output)]
        # With a name: Keras numbers the others in a process, and equal models would have other bytes.
        self._network = keras.Model(model.input, outputs, name=f"{model.name}_measured")

    def __call__(self, encoded: tf.Tensor) -> Values:
        """Measure images, string [N]."""
        specs = (tf.TensorSpec(self._pixels.model_shape, tf.float32), tf.TensorSpec((), tf.float32))
        images, brightness = tf.map_fn(self._one, encoded, fn_output_signature=specs)
        values, logits = self._network(images, training=False)
        if self._mirrors:
            logits = (logits + self._network(tf.reverse(images, [2]), training=False)[1]) / 2
        values = tf.cast(values, tf.float32)
        if between := range(1, len(values.shape) - 1):  # places in the image
            values = tf.reduce_mean(values, axis=list(between))
        return Values(values, logits, brightness)

    def _one(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = photographs.decoded(encoded, self._pixels)
        rows, columns = (tf.maximum(side // SAMPLED, 1) for side in tf.unstack(tf.shape(image)[:2]))
        brightness = tf.reduce_mean(tf.cast(image[::rows, ::columns], tf.float32))
        return self._pixels.evaluation_one(image), brightness


def random_features(values: tf.Tensor, bandwidth: float) -> tf.Tensor:
    """Random Fourier features [N, FEATURES] of values [N, width], for a Gaussian kernel."""
    width = values.shape[-1]
    weights = tf.random.stateless_normal((width, FEATURES), WEIGHTS_SEED, alg="philox")
    offsets = tf.random.stateless_uniform((FEATURES,), OFFSETS_SEED, 0.0, 2 * math.pi, alg="philox")
    return math.sqrt(2 / FEATURES) * tf.cos(tf.matmul(values / bandwidth, weights) + offsets)


def measure(
    model: keras.Model, description: Description, records: Path, data: Manifest, most: int
) -> Reference | str:
    """Measure at most `most` validation images, spread over the split; or say why there is no reference."""
    part = data.splits.get("validation")
    if most == 0:
        return "export.reference_examples is 0"
    if part is None or min(part.examples, most) < LEAST_IMAGES:
        found = "no" if part is None or not part.examples else f"{min(part.examples, most):,}"
        return f"it needs {LEAST_IMAGES} validation images, and there are {found}"
    measured = Measured(model, description)
    spec = tf.TensorSpec((None,), tf.string)
    values = _together(tf.function(measured, [spec], autograph=False), records, data, most)
    bandwidth = _bandwidth(values.penultimate)
    features = random_features(tf.constant(values.penultimate), bandwidth).numpy()
    # Of several labels, several logits may be that of a probability of 1, as which traffic counts them.
    sure = (
        values.logits if description.task == "multiclass" else tasks.probabilities("multilabel", values.logits)
    )
    predicted = np.bincount(sure.argmax(axis=1), minlength=len(description.classes)).tolist()
    bins = (values.brightness * BRIGHTNESS_BINS / 256).astype(int)
    return Reference(
        weights_sha256=description.weights_sha256,
        images=len(features),
        layer=measured.layer.layer,
        width=measured.width,
        bandwidth=bandwidth,
        features=reference.packed(features),
        classes=dict(zip(description.classes, predicted, strict=True)),
        brightness=np.bincount(bins, minlength=BRIGHTNESS_BINS).tolist(),
    )


def _together(measured: Any, records: Path, data: Manifest, most: int) -> Values:
    part = data.splits["validation"]
    spread = pipeline.spread(pipeline.encoded_images(records, part.shards), part.examples, most)

    def batches() -> Iterator[Values]:
        for batch in spread.batch(BATCH).prefetch(1).with_options(pipeline.untuned()):
            yield Values(*(each.numpy() for each in measured(batch)))

    with pipeline.naming_shards(records, data):
        return Values(*map(np.concatenate, zip(*batches(), strict=True)))


def _bandwidth(values: NDArray[np.float32]) -> float:
    """The median distance between two of the images, with four digits; 1 where most are equal."""
    step = -(-len(values) // PAIRED)
    chosen = values[::step].astype(np.float64)
    squares = (chosen**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * chosen @ chosen.T
    median = float(np.median(distances[np.triu_indices(len(chosen), 1)]))
    return float(f"{math.sqrt(median):.4g}") if median > 0 else 1.0
