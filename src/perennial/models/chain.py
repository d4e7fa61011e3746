"""Models that are one layer after the other."""

from collections.abc import Iterable

import keras


def chain(name: str, image: tuple[int, int, int], layers: Iterable[keras.Layer]) -> keras.Model:
    """The model of these layers for float32 images [N, height, width, channels]."""
    # keras.Sequential would put the model's name in front of every variable's path.
    inputs = outputs = keras.Input(image, name="image")
    for layer in layers:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs, name=name)
