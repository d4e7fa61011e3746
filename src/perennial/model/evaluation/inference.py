"""Logits of a model for the batches of a dataset."""

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.data.preprocessing import ImageSpec
from perennial.model import models

Predict = Callable[[tf.Tensor], tf.Tensor]
Logits = tuple[NDArray[np.float32], NDArray[np.int64]]  # [N, classes], with the labels [N]


def predictor(model: keras.Model, pixels: ImageSpec) -> Predict:
    """Compile a function from images of `records.pipeline.batches` to logits float32 [N, classes].

    Images are raw uint8 [N, height, width, channels] if all have one size, otherwise preprocessed.
    """
    return compiled(lambda images: logits_of(model, images), pixels)


def batch_logits(predict: Predict, dataset: tf.data.Dataset) -> Iterator[Logits]:
    """Logits and labels, batch by batch."""
    for images, labels in dataset:
        yield predict(images).numpy(), labels.numpy()


def compiled(function: Predict, pixels: ImageSpec) -> Predict:
    """Compile a function that preprocesses images, as for `predictor`, and passes them to `function`."""
    raw = pixels.same_size
    shape, kind = (pixels.raw_shape, tf.uint8) if raw else (pixels.model_shape, tf.float32)

    def predict(images: tf.Tensor) -> tf.Tensor:
        return function(pixels.evaluation(images) if raw else images)

    # Without AutoGraph, which would take longer than the rest of the tracing: no Python branch needs a tensor.
    found: Predict = tf.function(predict, [tf.TensorSpec((None, *shape), kind)], autograph=False)
    return found


def logits_of(model: keras.Model, inputs: tf.Tensor | list[tf.Tensor]) -> tf.Tensor:
    """Logits float32 [N, classes] of preprocessed images or other model inputs, without dropout."""
    return tf.cast(models.logits(model(inputs, training=False)), tf.float32)
