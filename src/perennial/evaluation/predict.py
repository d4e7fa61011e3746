"""Logits of a model for every example of a split."""

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial import models
from perennial.preprocessing import Pixels


def predictor(model: keras.Model, pixels: Pixels) -> Callable[[tf.Tensor], tf.Tensor]:
    """A compiled function from images as `records.read.batches` gives them to logits float32 [N, classes].

    Images are raw uint8 [N, height, width, channels] where all have one size, otherwise ready for the model.
    """
    if pixels.same_size:
        prepare, images = pixels.evaluation, tf.TensorSpec((None, *pixels.raw_shape), tf.uint8)
    else:
        prepare, images = tf.identity, tf.TensorSpec((None, *pixels.model_shape), tf.float32)

    def predict(images: tf.Tensor) -> tf.Tensor:
        return tf.cast(models.logits(model(prepare(images), training=False)), tf.float32)

    compiled: Callable[[tf.Tensor], tf.Tensor] = tf.function(predict, input_signature=[images])
    return compiled


def logits(
    predict: Callable[[tf.Tensor], tf.Tensor], dataset: tf.data.Dataset
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Logits and labels, batch by batch."""
    for images, labels in dataset:
        yield predict(images).numpy(), labels.numpy()
