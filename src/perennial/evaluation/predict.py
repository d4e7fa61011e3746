"""Logits of a model for every example of a split."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial import models
from perennial.models.saved import Description
from perennial.preprocessing import Pixels

Predict = Callable[[tf.Tensor], tf.Tensor]


def predictor(model: keras.Model, pixels: Pixels) -> Predict:
    """A compiled function from images as `records.pipeline.batches` gives them to logits float32 [N, classes].

    Images are raw uint8 [N, height, width, channels] where all have one size, otherwise ready for the model.
    """
    return _compiled(lambda images: _logits(model, pixels, images), pixels)


def copies(model: keras.Model, description: Description, devices: Sequence[str]) -> dict[str, keras.Model]:
    """The model by the first of some devices, and one of the same weights by each of the others."""
    found = {devices[0]: model}
    for device in devices[1:]:
        with tf.device(device):
            found[device] = description.build()
            for copied, weight in zip(found[device].weights, model.weights, strict=True):
                copied.assign(weight.numpy())
    return found


def shared(copies: Mapping[str, keras.Model], pixels: Pixels) -> Predict:
    """What `predictor` gives, with each batch shared out over devices that have a copy of the model each."""

    def predict(images: tf.Tensor) -> tf.Tensor:
        examples = tf.shape(images)[0]
        share = -(-examples // len(copies))
        answers = []
        for number, (device, model) in enumerate(copies.items()):
            # Who has no share is given the last example: not every operation bears to have none.
            first = tf.minimum(number * share, examples - 1)
            end = tf.maximum(tf.minimum((number + 1) * share, examples), first + 1)
            with tf.device(device):
                answers.append(_logits(model, pixels, images[first:end]))
        return tf.concat(answers, axis=0)[:examples]

    return _compiled(predict, pixels)


def logits(
    predict: Predict, dataset: tf.data.Dataset
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Logits and labels, batch by batch."""
    for images, labels in dataset:
        yield predict(images).numpy(), labels.numpy()


def _logits(model: keras.Model, pixels: Pixels, images: tf.Tensor) -> tf.Tensor:
    ready = pixels.evaluation(images) if pixels.same_size else images
    return tf.cast(models.logits(model(ready, training=False)), tf.float32)


def _compiled(predict: Predict, pixels: Pixels) -> Predict:
    raw = pixels.same_size
    shape, kind = (pixels.raw_shape, tf.uint8) if raw else (pixels.model_shape, tf.float32)
    compiled: Predict = tf.function(predict, input_signature=[tf.TensorSpec((None, *shape), kind)])
    return compiled
