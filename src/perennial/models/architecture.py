"""What an architecture is: a function that builds it, and the facts of its publication."""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import tensorflow as tf

from perennial.config.sections import ModelConfig
from perennial.errors import ConfigError
from perennial.models.applications import AUX_LOGITS, LOGITS, Application

Shape = tuple[int, int, int]  # height, width, channels


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """An image classifier that gives logits [N, classes]; with several heads, a dictionary of them."""

    network: Callable[[Shape, int, ModelConfig], keras.Model]  # image, classes, options
    image_size: int  # pixels a side, of the original
    channels: int = 3  # of the original
    parameters: int  # at that size and channels, with 10 classes
    preprocessing: str  # that it was published with
    weight_decay: float = 0.0  # L2 of the original
    decayed: tuple[str, ...] = ("*/kernel",)  # patterns of the paths of variables that L2 looks at
    head: tuple[str, ...] = (LOGITS,)  # patterns of the names of layers that depend on the classes
    least_size: int = 1  # pixels a side
    application: Application | None = None  # where Keras Applications' weights fit

    def build(self, image: Shape, classes: int, options: ModelConfig) -> keras.Model:
        """The model with new weights, for images [height, width, channels].

        Equal calls give equal names of layers and paths of variables, in one process and in several.

        Raises:
            ConfigError: the images are too small, or an option is of another architecture.
        """
        height, width, _ = image
        if min(height, width) < self.least_size:
            raise ConfigError(
                f"model.name: {options.name} needs images of at least {self.least_size} pixels a side, got "
                f"{height}x{width}; set preprocessing.image_size, {self.image_size} is the original's"
            )
        if options.conv_stddev is not None and options.name != "cifar10_tutorial":
            raise ConfigError(
                f"model.conv_stddev must be null for {options.name}, got {options.conv_stddev}: "
                "only cifar10_tutorial knows it"
            )
        return self.network(image, classes, options)


def logits(outputs: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor:
    """What a model thinks of each class, [N, classes], of all that it gives."""
    return outputs[LOGITS] if isinstance(outputs, dict) else outputs


def auxiliary_logits(outputs: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor | None:
    """What an auxiliary classifier thinks, for training alone, [N, classes]; None where there is none."""
    return outputs[AUX_LOGITS] if isinstance(outputs, dict) else None
