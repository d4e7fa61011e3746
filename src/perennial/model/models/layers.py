"""Layers and a model builder that the architectures share."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from perennial.base.config.data import ModelConfig

LRN_RADIUS, LRN_ALPHA, LRN_BETA = 4, 0.001 / 9, 0.75


def chained(
    layers: Callable[[int, ModelConfig], list[keras.Layer]],
) -> Callable[[tuple[int, int, int], int, ModelConfig], keras.Model]:
    """The `Architecture.network` of a sequence of layers, made for a number of classes and options."""

    def network(image: tuple[int, int, int], classes: int, options: ModelConfig) -> keras.Model:
        # keras.Sequential would prefix every variable path with the model's name.
        inputs = outputs = keras.Input(image, name="image")
        for layer in layers(classes, options):
            outputs = layer(outputs)
        return keras.Model(inputs, outputs, name=options.name)

    return network


class _Randomness(NamedTuple):
    seed: tf.Tensor  # int32 [2]; the second is the number of completed steps
    positions: tf.Tensor  # int32 [n], of these examples in the global batch
    batch_size: int  # of the global batch


_randomness: ContextVar[_Randomness | None] = ContextVar("randomness", default=None)


@contextmanager
def randomness(seed: tf.Tensor, positions: tf.Tensor, batch_size: int) -> Iterator[None]:
    """Set the seed of the dropout masks for models called in the block.

    A part of a batch gets the same rows of the mask as in the whole batch, on any number of devices.

    Args:
        seed: int32 [2], the training's seed and the number of completed steps.
        positions: int32 [n], the examples' positions in the global batch, 0 .. batch_size - 1.
        batch_size: examples of the global batch.
    """
    token = _randomness.set(_Randomness(seed, positions, batch_size))
    try:
        yield
    finally:
        _randomness.reset(token)


class Dropout(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """Dropout without random state: a mask is a pure function of seed, layer name and position in the batch.

    Outside a `randomness` block it uses Keras' global seed.
    """

    def __init__(self, rate: float, noise_shape: tuple[int | None, ...] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Keras' class would create a random state variable here, which every checkpoint would contain.
        self.rate = rate
        self.noise_shape = noise_shape
        # The name does not change when other layers are added or removed; the layer's index would.
        self._number = zlib.crc32(self.name.encode()) >> 1

    def call(self, inputs: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """In training, set a fraction `rate` of the inputs to 0 and divide the others by 1 - rate."""
        if not training or self.rate == 0:
            return inputs
        drawn = _randomness.get()
        if drawn is None:
            return keras.random.dropout(inputs, self.rate, noise_shape=self.noise_shape)
        # Of the global batch; the axes that `noise_shape` sets to 1 share one value.
        own = inputs.shape[1:] if self.noise_shape is None else self.noise_shape[1:]
        seed = tf.random.experimental.stateless_fold_in(drawn.seed, self._number)
        uniform = tf.random.stateless_uniform((drawn.batch_size, *own), seed)
        rate = self._rate(drawn)
        kept = tf.gather(uniform, drawn.positions) >= rate
        return tf.where(kept, inputs / tf.cast(1 - rate, inputs.dtype), tf.zeros((), inputs.dtype))

    def _rate(self, _: _Randomness) -> float | tf.Tensor:
        return self.rate

    def get_config(self) -> dict[str, Any]:
        """The arguments that create an equal layer."""
        return {**super().get_config(), "rate": self.rate, "noise_shape": self.noise_shape}


class DropPath(Dropout):
    """Stochastic depth: drops a branch for whole examples (Larsson et al. 2016).

    The rate rises linearly from 0.
    """

    def __init__(self, rate: float, steps: int, **kwargs: Any) -> None:
        super().__init__(rate, (None, 1, 1, 1), **kwargs)
        self.steps = steps  # until the full rate is reached

    def _rate(self, drawn: _Randomness) -> tf.Tensor:
        return self.rate * tf.minimum(tf.cast(drawn.seed[1], tf.float32) / self.steps, 1.0)

    def get_config(self) -> dict[str, Any]:
        """The arguments that create an equal layer."""
        config = {**super().get_config(), "steps": self.steps}
        del config["noise_shape"]
        return config


class Mirrored(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """In inference, appends the mirror image of each image to the batch; `MirroredMean` averages over both."""

    def call(self, images: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """[N, height, width, channels] to [2 N, height, width, channels]; in training, the images unchanged."""
        return images if training else keras.ops.concatenate([images, keras.ops.flip(images, axis=2)])


class MirroredMean(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """The mean over an image and its mirror image, which `Mirrored` added."""

    def call(self, features: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """[2 N, features] to [N, features]; in training, the features unchanged."""
        if training:
            return features
        return keras.ops.mean(keras.ops.reshape(features, (2, -1, features.shape[-1])), axis=0)


class LayerScale(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """A learned factor per channel at the end of a ConvNeXt block (Touvron et al. 2021, "Going deeper").

    The weight of Keras' own layer has no name, so its path would differ between models of one process.
    """

    def __init__(self, init_values: float, projection_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.init_values = init_values
        self.projection_dim = projection_dim

    def build(self, _: tuple[int | None, ...]) -> None:
        """Create the weight."""
        initial = keras.initializers.Constant(self.init_values)
        self.gamma = self.add_weight(name="gamma", shape=(self.projection_dim,), initializer=initial)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The inputs times the factors."""
        return inputs * self.gamma

    def get_config(self) -> dict[str, Any]:
        """The arguments that create an equal layer."""
        own = {"init_values": self.init_values, "projection_dim": self.projection_dim}
        return {**super().get_config(), **own}


class LocalResponseNormalization(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """Local response normalization (Krizhevsky et al. 2012, section 3.3), as in the CIFAR-10 networks.

    Each value is divided by (1 + 0.001 / 9 * the sum of squares over nine neighboring channels) ** 0.75.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalize [N, height, width, channels]; keeps the dtype."""
        return tf.cast(_normalized(tf.cast(inputs, tf.float32)), inputs.dtype)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _normalized(inputs: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """tf.nn.local_response_normalization in a quarter of the time of its own kernels on a CPU."""
    scale = 1 + LRN_ALPHA * _window_sums(tf.square(inputs))
    root = tf.math.rsqrt(scale)
    factor = root * tf.sqrt(root)
    outputs = inputs * factor

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * factor - 2 * LRN_ALPHA * LRN_BETA * inputs * _window_sums(upstream * outputs / scale)

    return outputs, gradient


def _window_sums(values: tf.Tensor) -> tf.Tensor:
    """Sum each channel with its neighbors, as a matrix product with a band of ones."""
    indices = np.arange(values.shape[-1])
    band = abs(indices[:, None] - indices) <= LRN_RADIUS
    return tf.tensordot(values, tf.constant(band, tf.float32), 1)
