"""LeNet as TF-Slim has it (research/slim/nets/lenet.py): wider than the original, with ReLU and max pooling."""

import keras
from keras import layers

from perennial.config.data import ModelConfig
from perennial.models.architecture import Architecture
from perennial.models.layers import Dropout, chain


def build(image: tuple[int, int, int], classes: int, options: ModelConfig) -> keras.Model:
    """A model from float32 [N, height, width, channels] to logits [N, classes].

    Truncated-normal weights of standard deviation 0.1, zero biases.
    """

    def conv(filters: int, name: str) -> keras.Layer:
        return layers.Conv2D(
            filters, 5, padding="same", activation="relu", kernel_initializer=_weights(), name=name
        )

    return chain(
        options.name,
        image,
        [
            conv(32, "conv1"),
            layers.MaxPooling2D(2, strides=2, padding="valid", name="pool1"),
            conv(64, "conv2"),
            layers.MaxPooling2D(2, strides=2, padding="valid", name="pool2"),
            layers.Flatten(name="flatten"),
            layers.Dense(1024, activation="relu", kernel_initializer=_weights(), name="fc3"),
            Dropout(0.5 if options.dropout is None else options.dropout, name="dropout3"),
            layers.Dense(classes, kernel_initializer=_weights(), name="logits"),
        ],
    )


def _weights() -> keras.Initializer:
    return keras.initializers.TruncatedNormal(stddev=0.1)


LENET = Architecture(
    network=build,
    image_size=28,
    channels=1,
    parameters=3_274_634,
    preprocessing="lenet",
    least_size=4,  # two poolings drop odd rows
)
