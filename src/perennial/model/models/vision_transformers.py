"""Vision transformers of KerasHub, an optional package (`requirements/keras-hub.txt`).

ViT: Dosovitskiy et al. 2021. DeiT: Touvron et al. 2021, "Training data-efficient image transformers"; its
distillation token is there, so that the published weights fit, and the class token gives the logits.
"""

import importlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import keras
import numpy as np
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.base.errors import ConfigError
from perennial.model.models.architecture import Architecture
from perennial.model.models.layers import Dropout

# Of ImageNet's pixels in 0..1, as DeiT takes them; ViT takes -1..1, as all networks here.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
POSITIONS = "position_embedding"  # in the path of the variable that depends on the image size


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """The size of a vision transformer."""

    kind: Literal["ViT", "DeiT"]
    blocks: int
    heads: int
    width: int
    patch: int = 16  # pixels a side
    published_size: int = 224  # pixels a side, of the published weights

    @property
    def tokens(self) -> int:
        """The tokens before those of the patches."""
        return 1 if self.kind == "ViT" else 2

    def network(self, image: tuple[int, int, int], classes: int, options: ModelConfig) -> keras.Model:
        """Build a model with new weights, from float32 [N, height, width, channels] to logits [N, classes]."""
        if any(side % self.patch for side in image[:2]):
            raise ConfigError(
                f"model.name: {options.name} needs images whose sides are multiples of {self.patch} pixels, "
                f"got {image[0]}x{image[1]}; set preprocessing.image_size, such as to {self.published_size}"
            )
        embed, encode = (layer for layer in self._backbone(image, options.name).layers if layer.weights)
        inputs = keras.Input(image, name="image")
        outputs = inputs
        if self.kind == "DeiT":
            scale, offset = _scaling(image[2])
            outputs = layers.Rescaling(scale, offset, name="scaling")(outputs)
        encoded = encode(embed(outputs))
        if isinstance(encoded, tuple):  # with hidden states and attentions
            encoded = encoded[0]
        first = layers.Cropping1D((0, encoded.shape[1] - 1), name="class_token")(encoded)
        features = layers.Flatten(name="features")(first)
        dropped = Dropout(options.dropout or 0.0, name="dropout")(features)
        return keras.Model(inputs, layers.Dense(classes, name="logits")(dropped), name=options.name)

    def published(self, model: keras.Model, file: Path) -> dict[str, np.ndarray]:
        """Read the weights of a KerasHub preset (its model.weights.h5), by the paths of the model's variables.

        The positions are interpolated to another number of patches, as in section 3.2 of the ViT's paper.
        """
        backbone = self._backbone((self.published_size, self.published_size, 3), model.name)
        try:
            # Keras only warns when it skips layers, so make its warnings errors.
            with warnings.catch_warnings(action="error", category=UserWarning):
                backbone.load_weights(file)
        except (OSError, ValueError, KeyError, UserWarning) as error:
            raise ConfigError(
                f"model.weights: {file} does not hold the weights of {model.name}, as model.weights.h5 of a "
                f"preset of KerasHub does: {' '.join(str(error).split())}"
            ) from error
        found = {variable.path: variable.numpy() for variable in backbone.variables}
        for variable in model.variables:
            if POSITIONS in variable.path:
                shape = tuple(variable.shape)
                found[variable.path] = resized_positions(found[variable.path], shape, self.tokens)
        return found

    def _backbone(self, image: tuple[int, int, int], name: str) -> keras.Model:
        try:
            models = importlib.import_module("keras_hub").models
        except ImportError as error:
            raise ConfigError(
                f"model.name: {name} needs the package keras-hub, and it cannot be imported ({error}); "
                "`perennial add keras-hub` installs it"
            ) from error
        size = {"num_layers": self.blocks, "num_heads": self.heads, "hidden_dim": self.width}
        if self.kind == "ViT":
            return models.ViTBackbone(image, self.patch, mlp_dim=4 * self.width, **size)
        return models.DeiTBackbone(image, self.patch, intermediate_dim=4 * self.width, **size)


def resized_positions(positions: np.ndarray, shape: tuple[int, ...], tokens: int) -> np.ndarray:
    """Interpolate embeddings of positions [(1,) positions, width] to another square grid of patches.

    The first `tokens` positions are not of patches, and stay.
    """
    if positions.shape == shape:
        return positions
    rows = positions.reshape(-1, positions.shape[-1])
    old, new = (round((count - tokens) ** 0.5) for count in (len(rows), shape[-2]))
    if new**2 + tokens != shape[-2]:
        return positions  # no square: the caller refuses the shape
    grid = rows[tokens:].reshape(1, old, old, -1)
    between = keras.ops.image.resize(grid, (new, new), interpolation="bicubic", antialias=True)
    patches = keras.ops.convert_to_numpy(between).reshape(new * new, -1)
    return np.concatenate([rows[:tokens], patches]).reshape(shape)


def _scaling(channels: int) -> tuple[list[float], list[float]]:
    """Factors and summands that turn -1..1 into pixels as DeiT takes them; of grey, the means."""
    mean, deviation = np.asarray(MEAN), np.asarray(DEVIATION)
    if channels != len(MEAN):
        mean, deviation = np.full(channels, mean.mean()), np.full(channels, deviation.mean())
    return (0.5 / deviation).tolist(), ((0.5 - mean) / deviation).tolist()


TRANSFORMERS = {
    "vit_base_16": Transformer(kind="ViT", blocks=12, heads=12, width=768),
    "vit_base_32": Transformer(kind="ViT", blocks=12, heads=12, width=768, patch=32, published_size=384),
    "vit_large_16": Transformer(kind="ViT", blocks=24, heads=16, width=1024),
    "deit_tiny_16": Transformer(kind="DeiT", blocks=12, heads=3, width=192),
    "deit_small_16": Transformer(kind="DeiT", blocks=12, heads=6, width=384),
    "deit_base_16": Transformer(kind="DeiT", blocks=12, heads=12, width=768),
}
ARCHITECTURES = {name: Architecture(network=each.network) for name, each in TRANSFORMERS.items()}
