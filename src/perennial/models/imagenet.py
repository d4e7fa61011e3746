"""Weights that were trained on ImageNet, from a local file of Keras Applications."""

import logging
import warnings
from fnmatch import fnmatchcase
from pathlib import Path

import keras
import numpy as np

from perennial import files
from perennial.errors import ConfigError
from perennial.models.applications import own_names
from perennial.models.architecture import Architecture

log = logging.getLogger(__name__)
CLASSES = 1000  # of the published heads


def require_file(file: Path) -> None:
    """Refuses a file that is not there (ConfigError), before anything is built for it."""
    if not file.is_file():
        raise ConfigError(f"model.imagenet_weights: {file} does not exist; get it from Keras Applications")


def load(model: keras.Model, architecture: Architecture, file: Path) -> None:
    """Gives all layers but the head the weights of a file that Keras Applications publishes or Keras wrote.

    A file without top leaves the last layers before the head new too. The files have no checksum: the log
    names the SHA-256 of what was read.

    Raises:
        ConfigError: the architecture is not of Keras Applications, or the file is of another one; the
            model is as it was.
    """
    published, names = _published(model.name, architecture, file)
    ours = {layer.name: layer for layer in model.layers}
    head = {name for name in ours for pattern in architecture.head if fnmatchcase(name, pattern)}
    pairs = [
        (ours[names[layer.name]], layer)
        for layer in published.layers
        if layer.weights and names[layer.name] in ours.keys() - head
    ]
    values = [(own, _values(file, own, layer, architecture)) for own, layer in pairs]
    _colours_as_here(values, architecture)
    for own, arrays in values:
        own.set_weights(arrays)
    filled = {own.name for own, _ in values}
    new = [name for name, layer in ours.items() if layer.weights and name not in filled]
    log.info(
        "took %d layers' weights from %s with sha256 %s; new are %s",
        len(values), file, files.sha256(file), ", ".join(new),
    )  # fmt: skip


def _published(name: str, architecture: Architecture, file: Path) -> tuple[keras.Model, dict[str, str]]:
    """The network as it was published, with the file's weights, and our names of its layers."""
    application = architecture.application
    if application is None:
        raise ConfigError(
            f"model.imagenet_weights must be null for {name}, got {file}: it is not of Keras Applications"
        )
    image = (architecture.image_size, architecture.image_size, 3)
    require_file(file)
    reasons = []
    for top in (True, False):
        network = application.make(weights=None, input_shape=image, include_top=top, classes=CLASSES)
        try:
            # Keras only warns when it leaves layers as they were.
            with warnings.catch_warnings(action="error", category=UserWarning):
                network.load_weights(file)
        except (OSError, ValueError, KeyError, UserWarning) as error:
            reasons.append(" ".join(str(error).split()))
            continue
        return network, own_names(network, application.classifier)
    raise ConfigError(
        f"model.imagenet_weights: {file} does not hold the weights of {name}; "
        f"read with its head: {reasons[0]}; without: {reasons[1]}"
    )


def _values(
    file: Path, own: keras.Layer, published: keras.Layer, architecture: Architecture
) -> list[np.ndarray]:
    """The weights of a published layer, which must have the shapes of ours."""
    values: list[np.ndarray] = published.get_weights()
    wanted, got = [tuple(weight.shape) for weight in own.weights], [value.shape for value in values]
    if wanted != got:
        raise ConfigError(
            f"model.imagenet_weights: layer {own.name} needs weights of shape {wanted}, {file} has {got}; "
            f"they fit images of 3 channels, and where the net is fully connected (VGG) of "
            f"{architecture.image_size} pixels a side, unless the file is one without top"
        )
    return values


def _colours_as_here(values: list[tuple[keras.Layer, list[np.ndarray]]], architecture: Architecture) -> None:
    """Turns the first kernel round where the published network sees blue first and ours red."""
    application = architecture.application
    if application is not None and application.bgr:
        kernels = values[0][1]
        kernels[0] = kernels[0][:, :, ::-1]
