"""An architecture: the function that builds it, and its published settings; `config.networks` has its sizes."""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base.config.data import ModelConfig
from perennial.base.config.networks import NETWORKS
from perennial.base.errors import ConfigError

LOGITS, AUX_LOGITS = "logits", "aux_logits"
Shape = tuple[int, int, int]  # height, width, channels


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """An image classifier that returns logits [N, classes] or, with several heads, a dictionary of them."""

    network: Callable[[Shape, int, ModelConfig], keras.Model]  # image, classes, options
    preprocessing: str  # as published
    weight_decay: float = 0.0  # L2, as published
    decayed: tuple[str, ...] = ("*/kernel",)  # path patterns of the variables with an L2 penalty
    head: tuple[str, ...] = (LOGITS,)  # name patterns of the layers that depend on the classes
    # Sets weights of a new model from training images [N, height, width, channels], as the model gets them.
    prepare: Callable[[keras.Model, NDArray[np.float32]], None] | None = None
    mirrored: bool = False  # inference averages over an image and its mirror image

    def build(self, image: Shape, classes: int, options: ModelConfig) -> keras.Model:
        """Build the model with new weights, for images [height, width, channels].

        Equal calls give equal layer names and variable paths, in one process and across processes.

        Raises:
            ConfigError: the images are too small, or an option is for another architecture.
        """
        (height, width, _), facts = image, NETWORKS[options.name]
        if min(height, width) < facts.least_size:
            raise ConfigError(
                f"model.name: {options.name} needs images of at least {facts.least_size} pixels a side, got "
                f"{height}x{width}; set preprocessing.image_size, published with {facts.image_size}"
            )
        for option, network in {"conv_stddev": "cifar10_tutorial", "channels": "fast_cnn"}.items():
            given = getattr(options, option)
            if given is not None and options.name != network:
                raise ConfigError(
                    f"model.{option} must be null for {options.name}, got {given}: only {network} has it"
                )
        return self.network(image, classes, options)


def logits(outputs: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor:
    """Logits [N, classes] from the outputs of a model."""
    return outputs[LOGITS] if isinstance(outputs, dict) else outputs


def auxiliary_logits(outputs: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor | None:
    """Logits of the auxiliary classifier [N, classes], for training only; None without one."""
    return outputs[AUX_LOGITS] if isinstance(outputs, dict) else None
