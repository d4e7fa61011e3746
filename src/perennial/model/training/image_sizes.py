"""Training on smaller images first, for speed; evaluations and exports take the full size.

Method: progressive resizing, as in fast.ai's DAWNBench entries (2018) and EfficientNetV2 (Tan, Le 2021).
"""

from collections.abc import Sequence
from typing import Protocol

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.errors import ConfigError
from perennial.model.training.triggers import Length


class Forward(Protocol):
    """A network, or one that gets its images resized."""

    def __call__(self, images: tf.Tensor, *, training: bool) -> object:
        """The outputs for images as the network gets them."""


class Sizes:
    """The size of the training images by step: equal parts of the training, each with a size of its own."""

    def __init__(self, model: keras.Model, sizes: Sequence[int], length: Length) -> None:
        self._sizes, self._steps = sizes, length.steps
        height, width, channels = model.input.shape[1:]
        self._full = height if height == width else None
        for side in sizes:
            if not _takes(model, (side, side, channels)):
                raise ConfigError(
                    f"train.augmentation.image_sizes must be [] for {model.name} here, got {list(sizes)}: its "
                    f"weights are for images of {height} x {width} pixels, and not for {side} x {side}"
                )

    def side(self, step: int) -> int | None:
        """Pixels a side in the step that follows `step` completed ones; None: as the model input."""
        if not self._sizes:
            return None
        side = self._sizes[min(step * len(self._sizes) // self._steps, len(self._sizes) - 1)]
        return None if side == self._full else side

    def change(self, step: int) -> int | None:
        """The first step after `step` with another size; None if there is none."""
        parts = len(self._sizes)
        starts = (-(-part * self._steps // parts) for part in range(1, parts))
        return next((start for start in starts if start > step), None)


def resized(network: keras.Model, side: int, images: tf.Tensor, *, training: bool) -> object:
    """The outputs of a network for its input images, resized to `side` pixels."""
    rows, columns = (tf.constant(_weights(full, side), images.dtype) for full in images.shape[1:3])
    small = tf.einsum("ah,bw,nhwc->nabc", rows, columns, images)
    # `call`, because a call of the model would check for the size that it was built for.
    return network.call(small, training=training)


def _weights(full: int, side: int) -> NDArray[np.float32]:
    """The share of each of `full` pixels in each of `side` pixels, float32 [side, full], for XLA."""
    with tf.init_scope():
        single = np.eye(full, dtype=np.float32)[:, None]
        weights: NDArray[np.float32] = tf.image.resize(single, (side, 1), antialias=True).numpy()
    return weights[:, 0]


def _takes(model: keras.Model, shape: tuple[int, int, int]) -> bool:
    """Whether a network gives outputs of the same shape for images of another shape."""
    traced = tf.function(lambda images: model.call(images, training=False), autograph=False)
    try:
        outputs = traced.get_concrete_function(tf.TensorSpec((1, *shape))).structured_outputs
    except (ValueError, tf.errors.OpError):
        return False
    shapes = [each.shape[1:] for each in model.outputs]
    return [tuple(each.shape[1:]) for each in tf.nest.flatten(outputs)] == [tuple(each) for each in shapes]
