"""Logits of a model for the batches of a dataset, on one device or several."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.data.preprocessing import ImageSpec
from perennial.model import models
from perennial.model.models.model_folder import Description

Predict = Callable[[tf.Tensor], tf.Tensor]
Logits = tuple[NDArray[np.float32], NDArray[Any]]  # [N, classes], with the labels of `records.pipeline.batches`


def predictor(model: keras.Model, pixels: ImageSpec, *, mirror: bool = False) -> Predict:
    """Compile a function from images of `records.pipeline.batches` to logits as in `models.logits_of`.

    Images are raw uint8 [N, height, width, channels] if all have one size, otherwise preprocessed.
    """
    return compiled(lambda images: models.logits_of(model, images, mirror=mirror), pixels)


def on_devices(model: keras.Model, description: Description, devices: Sequence[str]) -> Predict:
    """`predictor`, which splits each batch over the devices if there are several."""
    if len(devices) == 1:
        return predictor(model, description.pixels, mirror=description.mirror)
    return _sharded(copies(model, description, devices), description)


def copies(model: keras.Model, description: Description, devices: Sequence[str]) -> dict[str, keras.Model]:
    """The model for the first device, and a copy with the same weights on each of the others."""
    found = {devices[0]: model}
    for device in devices[1:]:
        with tf.device(device):
            found[device] = description.build()
            for copied, weight in zip(found[device].weights, model.weights, strict=True):
                copied.assign(weight.numpy())
    return found


def batch_logits(predict: Predict, dataset: tf.data.Dataset) -> Iterator[Logits]:
    """Logits and labels, batch by batch."""
    for images, labels in dataset:
        yield predict(images).numpy(), labels.numpy()


def compiled(function: Predict, pixels: ImageSpec) -> Predict:
    """Compile a function that preprocesses images, as for `predictor`, and passes them to `function`."""
    return _compiled(lambda images: function(_ready(pixels, images)), pixels)


def _sharded(copies: Mapping[str, keras.Model], description: Description) -> Predict:
    pixels = description.pixels

    def predict(images: tf.Tensor) -> tf.Tensor:
        examples = tf.shape(images)[0]
        share = -(-examples // len(copies))
        parts = []
        for number, (device, model) in enumerate(copies.items()):
            # A device without a share gets the last example: not every operation accepts an empty batch.
            first = tf.minimum(number * share, examples - 1)
            end = tf.maximum(tf.minimum((number + 1) * share, examples), first + 1)
            with tf.device(device):
                ready = _ready(pixels, images[first:end])
                parts.append(models.logits_of(model, ready, mirror=description.mirror))
        return tf.concat(parts, axis=0)[:examples]

    return _compiled(predict, pixels)


def _ready(pixels: ImageSpec, images: tf.Tensor) -> tf.Tensor:
    return pixels.evaluation(images) if pixels.same_size else images


def _compiled(predict: Predict, pixels: ImageSpec) -> Predict:
    raw = pixels.same_size
    shape, kind = (pixels.raw_shape, tf.uint8) if raw else (pixels.model_shape, tf.float32)
    # Without AutoGraph, which would take longer than the rest of the tracing: no Python branch needs a tensor.
    signature = [tf.TensorSpec((None, *shape), kind)]
    found: Predict = tf.function(predict, input_signature=signature, autograph=False)
    return found
