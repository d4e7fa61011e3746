"""Dropout without a random state: a mask is a pure function of seed, layer and place in the global batch."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras
import tensorflow as tf


class _Randomness(NamedTuple):
    seed: tf.Tensor  # int32 [2]
    positions: tf.Tensor  # int32 [n], of this part's examples in the global batch
    batch_size: int  # of the global batch


_randomness: ContextVar[_Randomness | None] = ContextVar("randomness", default=None)


@contextmanager
def randomness(seed: tf.Tensor, positions: tf.Tensor, batch_size: int) -> Iterator[None]:
    """Says what the masks of models called in the block are drawn from.

    Parts of a batch get the rows of the mask that the whole batch would get, on however many devices it lies.

    Args:
        seed: int32 [2], another one each step.
        positions: int32 [n], the examples' places in the global batch, 0 .. batch_size - 1.
        batch_size: examples of the global batch.
    """
    token = _randomness.set(_Randomness(seed, positions, batch_size))
    try:
        yield
    finally:
        _randomness.reset(token)


class Dropout(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """Keras' Dropout with the masks of `randomness`; outside of such a block Keras' own, of its global seed."""

    def __init__(self, rate: float, noise_shape: tuple[int | None, ...] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Keras' class would make a variable of random state here, which every checkpoint would hold.
        self.rate = rate
        self.noise_shape = noise_shape
        # The name stands for the layer's place in the model: it stays when other layers come or go.
        self._number = zlib.crc32(self.name.encode()) >> 1

    def call(self, inputs: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """The inputs with a share of `rate` put to 0, the others divided by 1 - rate; in training alone."""
        if not training or self.rate == 0:
            return inputs
        drawn = _randomness.get()
        if drawn is None:
            return keras.random.dropout(inputs, self.rate, noise_shape=self.noise_shape)
        kept = tf.gather(self._uniform(inputs, drawn), drawn.positions) >= self.rate
        return tf.where(kept, inputs / tf.cast(1 - self.rate, inputs.dtype), tf.zeros((), inputs.dtype))

    def _uniform(self, inputs: tf.Tensor, drawn: _Randomness) -> tf.Tensor:
        """Float32 in [0, 1) for the whole global batch, of the inputs' shape but for axes of one value."""
        own = inputs.shape[1:] if self.noise_shape is None else self.noise_shape[1:]
        seed = tf.random.experimental.stateless_fold_in(drawn.seed, self._number)
        return tf.random.stateless_uniform((drawn.batch_size, *own), seed)

    def get_config(self) -> dict[str, Any]:
        """What makes an equal layer."""
        return {**super().get_config(), "rate": self.rate, "noise_shape": self.noise_shape}
