"""The factor of each channel at the end of a block of ConvNeXt (Touvron et al. 2021, "Going deeper")."""

from typing import Any

import keras
import tensorflow as tf


class LayerScale(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """Keras' own, whose weight has no name there and gets another one in each model of a process."""

    def __init__(self, init_values: float, projection_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.init_values = init_values
        self.projection_dim = projection_dim

    def build(self, _: tuple[int | None, ...]) -> None:
        """Makes the weight."""
        initial = keras.initializers.Constant(self.init_values)
        self.gamma = self.add_weight(name="gamma", shape=(self.projection_dim,), initializer=initial)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The inputs times the factors."""
        return inputs * self.gamma

    def get_config(self) -> dict[str, Any]:
        """What makes an equal layer."""
        own = {"init_values": self.init_values, "projection_dim": self.projection_dim}
        return {**super().get_config(), **own}
