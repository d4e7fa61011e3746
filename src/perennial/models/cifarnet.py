"""CifarNet as TF-Slim has it (research/slim/nets/cifarnet.py)."""

import keras
from keras import layers

from perennial.config.data import ModelConfig
from perennial.models.architecture import Architecture
from perennial.models.layers import Dropout, LocalResponseNormalization, chain


def build(image: tuple[int, int, int], classes: int, options: ModelConfig) -> keras.Model:
    """A model from float32 [N, height, width, channels] to logits [N, classes].

    Truncated-normal weights, of a standard deviation of their own in each kind of layer. The first
    normalization comes after its pooling, the second before.
    """
    return chain(
        options.name,
        image,
        [
            _conv("conv1"),
            layers.MaxPooling2D(2, strides=2, padding="valid", name="pool1"),
            LocalResponseNormalization(name="norm1"),
            _conv("conv2"),
            LocalResponseNormalization(name="norm2"),
            layers.MaxPooling2D(2, strides=2, padding="valid", name="pool2"),
            layers.Flatten(name="flatten"),
            _dense(384, "fc3"),
            Dropout(0.5 if options.dropout is None else options.dropout, name="dropout3"),
            _dense(192, "fc4"),
            layers.Dense(classes, kernel_initializer=_weights(1 / 192), name="logits"),
        ],
    )


def _conv(name: str) -> keras.Layer:
    return layers.Conv2D(64, 5, padding="same", activation="relu", kernel_initializer=_weights(0.05), name=name)


def _dense(units: int, name: str) -> keras.Layer:
    return layers.Dense(
        units, activation="relu", kernel_initializer=_weights(0.04), bias_initializer=_constant(0.1), name=name
    )


def _weights(stddev: float) -> keras.Initializer:
    return keras.initializers.TruncatedNormal(stddev=stddev)


def _constant(value: float) -> keras.Initializer:
    return keras.initializers.Constant(value)


CIFARNET = Architecture(
    network=build,
    image_size=32,
    parameters=1_756_426,
    preprocessing="cifarnet",
    weight_decay=0.004,
    decayed=("fc3/kernel", "fc4/kernel"),
    least_size=4,  # two poolings drop odd rows
)
