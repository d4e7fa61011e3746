"""The network of TensorFlow's official MNIST program (official/mnist/mnist.py)."""

import keras
from keras import layers

from perennial.config.data import ModelConfig
from perennial.models.architecture import Architecture
from perennial.models.layers import Dropout, chain


def build(image: tuple[int, int, int], classes: int, options: ModelConfig) -> keras.Model:
    """A model from float32 [N, height, width, channels] to logits [N, classes].

    Glorot-uniform weights, zero biases, no weight decay, as the original.
    """
    # Names of our own: Keras numbers unnamed layers by process, and the files of equal models would differ.
    return chain(
        options.name,
        image,
        [
            layers.Conv2D(32, 5, padding="same", activation="relu", name="conv1"),
            layers.MaxPooling2D(2, strides=2, padding="same", name="pool1"),
            layers.Conv2D(64, 5, padding="same", activation="relu", name="conv2"),
            layers.MaxPooling2D(2, strides=2, padding="same", name="pool2"),
            layers.Flatten(name="flatten"),
            layers.Dense(1024, activation="relu", name="dense"),
            Dropout(0.4 if options.dropout is None else options.dropout, name="dropout"),
            layers.Dense(classes, name="logits"),
        ],
    )


MNIST_CNN = Architecture(
    network=build, image_size=28, channels=1, parameters=3_274_634, preprocessing="rescale"
)
