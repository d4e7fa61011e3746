"""The network of TensorFlow's official MNIST program (official/mnist/mnist.py)."""

import keras
from keras import layers


def build(image: tuple[int, int, int], classes: int) -> keras.Model:
    """A model from float32 [N, height, width, channels] to logits [N, classes]; 3,274,634 weights at 28x28x1.

    Glorot-uniform weights, zero biases, no weight decay, as the original.
    """
    # Names of our own: Keras numbers unnamed layers by process, and the files of equal models would differ.
    return keras.Sequential(
        [
            keras.Input(image, name="image"),
            layers.Conv2D(32, 5, padding="same", activation="relu", name="conv1"),
            layers.MaxPooling2D(2, strides=2, padding="same", name="pool1"),
            layers.Conv2D(64, 5, padding="same", activation="relu", name="conv2"),
            layers.MaxPooling2D(2, strides=2, padding="same", name="pool2"),
            layers.Flatten(name="flatten"),
            layers.Dense(1024, activation="relu", name="dense"),
            layers.Dropout(0.4, name="dropout"),
            layers.Dense(classes, name="logits"),
        ],
        name="mnist_cnn",
    )
