# Origin: airbench94.py of github.com/KellerJordan/cifar10-airbench (MIT):
# the network's form and initial weights.
"""A small network that learns in a few epochs, after airbench (Jordan 2024, "94% on CIFAR-10 in 3.29 seconds").

What makes it learn fast (the proportions are those of airbench, with fewer channels):

- The first layer whitens 2x2 pixels: its kernel is computed from training images and is not trained.
- The other convolutions start as the identity where possible, so that signals pass through all of them from the
  first step.
- Offsets after a normalization learn 64 times faster than the other weights.
- The logits are scaled down, so that their gradients do not dominate those of the other layers.

Inference averages over each image and its mirror image, so a task where left and right matter, such as letters,
needs another network.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import Architecture
from perennial.model.models.layers import Dropout, Mirrored, MirroredMean, chained

WHITENED = 2  # pixels a side
LEAST_VARIANCE = 5e-4  # of a whitened direction: smaller ones are noise, which whitening would amplify
CHANNELS = (64, 128, 128)  # per block; airbench has 64, 256 and 256
OFFSET_SPEED = 64.0  # learning rate of offsets relative to that of the other weights
LOGITS_SCALE = 1 / 9
BATCH_NORM_DECAY = 0.6  # of the averages; small, because a training has only a few hundred steps


class Whitening(layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """A convolution whose outputs are uncorrelated and have variance 1 on the images passed to `fit`.

    Each direction appears with both signs, because the activation that follows keeps only one. Only the bias is
    trained.
    """

    def build(self, shape: tuple[int, int, int, int]) -> None:
        """Create the weights."""
        channels = shape[-1]
        kernel = (WHITENED, WHITENED, channels, 2 * WHITENED * WHITENED * channels)
        initial = keras.initializers.VarianceScaling(1.0, "fan_in", "truncated_normal")
        self.kernel = self.add_weight(name="kernel", shape=kernel, initializer=initial, trainable=False)
        self.bias = self.add_weight(name="bias", shape=kernel[-1:], initializer="zeros")

    def call(self, images: tf.Tensor) -> tf.Tensor:
        """[N, height, width, channels] to [N, height - 1, width - 1, 8 * channels]."""
        return keras.ops.conv(images, self.kernel, padding="valid") + self.bias

    def fit(self, images: NDArray[np.float32]) -> None:
        """Compute the kernel from images [N, height, width, channels] as the model gets them."""
        windows = np.lib.stride_tricks.sliding_window_view(images, (WHITENED, WHITENED), axis=(1, 2))
        patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, WHITENED * WHITENED * images.shape[-1])
        patches = patches.astype(np.float64)
        variances, directions = np.linalg.eigh(patches.T @ patches / len(patches))
        # The sign of an eigenvector is up to the library, so fix it.
        largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
        scaled = directions * np.sign(largest) / np.sqrt(variances + LEAST_VARIANCE)
        self.kernel.assign(np.concatenate([scaled, -scaled], axis=1).reshape(self.kernel.shape))


class FastBatchNorm(layers.BatchNormalization):  # type: ignore[misc]  # Keras ships no types
    """Batch normalization without scale, whose offset learns OFFSET_SPEED times as fast as other weights.

    It uses TensorFlow's fused kernel, which on a CPU is several times as fast as Keras' separate operations.
    """

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """The normalized inputs, in their dtype."""
        # If the offset is a weight times s, the weight gets s times the gradient and moves the offset by s
        # times its step.
        offset = self.beta * OFFSET_SPEED**0.5
        trains = bool(training and self.trainable)
        if trains and self.synchronized:  # the kernel sees only one device
            mean, variance = self._moments(inputs, None)
            outputs = tf.nn.batch_normalization(
                inputs, *(tf.cast(part, inputs.dtype) for part in (mean, variance, offset)), None, self.epsilon
            )
        else:
            used = (tf.zeros(0), tf.zeros(0)) if trains else (self.moving_mean, self.moving_variance)
            outputs, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
                x=inputs, scale=tf.ones_like(offset), offset=offset, mean=used[0], variance=used[1],
                epsilon=self.epsilon, is_training=trains,
            )  # fmt: skip
        if trains:
            for average, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
                average.assign(average * self.momentum + tf.cast(new, average.dtype) * (1.0 - self.momentum))
        return outputs


class PartialIdentity(keras.initializers.VarianceScaling):  # type: ignore[misc]  # Keras ships no types
    """Uniform weights, except that the first outputs of a convolution copy its inputs."""

    def __init__(self) -> None:
        super().__init__(1 / 3, "fan_in", "uniform")  # limit: 1 / sqrt(inputs of a unit)

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> tf.Tensor:
        """A kernel [rows, columns, inputs, outputs]."""
        kernel = np.array(super().__call__(shape, dtype=dtype))
        rows, columns, inputs, outputs = shape
        copied = np.arange(min(inputs, outputs))
        kernel[..., copied] = 0
        kernel[rows // 2, columns // 2, copied, copied] = 1
        return tf.constant(kernel)

    def get_config(self) -> dict[str, Any]:
        """The arguments that create an equal initializer: none."""
        return {}


def gelu(values: tf.Tensor) -> tf.Tensor:
    """GELU approximated with tanh, which all export formats support; not all have the error function."""
    return keras.ops.gelu(values, approximate=True)


def fast_cnn(classes: int, options: ModelConfig) -> list[keras.Layer]:
    """Whitening, three blocks of two convolutions, and a global maximum; inference averages over mirror images.

    The original has no dropout; `model.dropout` goes before the logits.
    """
    dropout = [] if options.dropout is None else [Dropout(options.dropout, name="dropout")]
    blocks = [
        layer
        for number, channels in enumerate(options.channels or CHANNELS, 1)
        for layer in _block(number, channels, options)
    ]
    return [
        Mirrored(name="mirrored"),
        Whitening(name="whitening"),
        layers.Activation(gelu, name="whitening_gelu"),
        *blocks,
        layers.GlobalMaxPooling2D(name="pool"),
        MirroredMean(name="mirrored_mean"),
        layers.Rescaling(LOGITS_SCALE, name="scale"),  # same as scaling its outputs
        *dropout,
        layers.Dense(
            classes,
            use_bias=False,
            kernel_initializer=keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform"),
            name="logits",
        ),
    ]


def _block(number: int, channels: int, options: ModelConfig) -> list[keras.Layer]:
    """Two convolutions; pooling after the first halves height and width."""
    decay = BATCH_NORM_DECAY if options.batch_norm_decay is None else options.batch_norm_decay
    found: list[keras.Layer] = []
    for part in (1, 2):
        name = f"block{number}_{part}"
        initial = PartialIdentity()
        conv = layers.Conv2D(
            channels, 3, padding="same", use_bias=False, kernel_initializer=initial, name=f"{name}_conv"
        )
        pool = [layers.MaxPooling2D(2, name=f"{name}_pool")] if part == 1 else []
        norm = FastBatchNorm(momentum=decay, epsilon=1e-6, scale=False, name=f"{name}_norm")
        found += [conv, *pool, norm, layers.Activation(gelu, name=f"{name}_gelu")]
    return found


FAST_CNN = Architecture(
    network=chained(fast_cnn),
    weight_decay=1.3e-3,
    decayed=("block*/kernel", "logits/kernel"),
    prepare=lambda model, images: model.get_layer("whitening").fit(images),
)
