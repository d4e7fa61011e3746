"""Logits of a model for every example of a split."""

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.preprocessing import Pixels


def predictor(model: keras.Model, pixels: Pixels) -> Callable[[tf.Tensor], tf.Tensor]:
    """A compiled function from resized uint8 images [N, height, width, channels] to logits [N, classes]."""
    shape = tf.TensorSpec((None, *pixels.model_shape), tf.uint8)

    def predict(images: tf.Tensor) -> tf.Tensor:
        return tf.cast(model(pixels.preprocess(images), training=False), tf.float32)

    compiled: Callable[[tf.Tensor], tf.Tensor] = tf.function(predict, input_signature=[shape])
    return compiled


def logits(
    predict: Callable[[tf.Tensor], tf.Tensor], dataset: tf.data.Dataset
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Logits and labels, batch by batch."""
    for images, labels in dataset:
        yield predict(images).numpy(), labels.numpy()
