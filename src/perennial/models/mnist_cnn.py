"""The network of TensorFlow's official MNIST program (official/mnist/mnist.py)."""

import keras
from keras import layers


def build(image: tuple[int, int, int], classes: int) -> keras.Model:
    """A model from float32 [N, height, width, channels] to logits [N, classes]; 3,274,634 weights at 28x28x1.

    Glorot-uniform weights, zero biases, no weight decay, as the original.
    """
    return keras.Sequential(
        [
            keras.Input(image),
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2, strides=2, padding="same"),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2, strides=2, padding="same"),
            layers.Flatten(),
            layers.Dense(1024, activation="relu"),
            layers.Dropout(0.4),
            layers.Dense(classes),
        ],
        name="mnist_cnn",
    )
