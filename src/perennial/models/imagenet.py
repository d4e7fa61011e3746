"""Weights pretrained on ImageNet, from a local file of Keras Applications."""

import logging
import warnings
from fnmatch import fnmatchcase
from pathlib import Path

import keras
import numpy as np

from perennial import files
from perennial.config.networks import NETWORKS
from perennial.errors import ConfigError
from perennial.models.keras_applications import APPLICATIONS, Application, layer_names

log = logging.getLogger(__name__)
CLASSES = 1000  # of the published heads


def require_file(file: Path) -> Path:
    """Return the file; ConfigError: it does not exist."""
    if not file.is_file():
        raise ConfigError(f"model.weights: {file} does not exist")
    return file


def load(model: keras.Model, file: Path) -> None:
    """Load all layers except the head from a file that Keras Applications publishes or Keras wrote.

    A file without top also leaves the layers just before the head unchanged. The files have no checksum, so the
    log gives the SHA-256 of the file.

    Raises:
        ConfigError: the model is not from Keras Applications, or the file belongs to another architecture; the
            model is unchanged.
    """
    if (application := APPLICATIONS.get(model.name)) is None:
        raise ConfigError(
            f"model.weights must be null for {model.name}, got {file}: it is not in Keras Applications"
        )
    published, names = _published(model.name, application, require_file(file))
    layers = {layer.name: layer for layer in model.layers}
    head = {name for name in layers for pattern in application.head if fnmatchcase(name, pattern)}
    pairs = [
        (layers[names[layer.name]], layer)
        for layer in published.layers
        if layer.weights and names[layer.name] in layers.keys() - head
    ]
    values = [(own, _values(file, own, layer, model.name)) for own, layer in pairs]
    if application.bgr:  # the weights expect BGR, our images are RGB
        kernels = values[0][1]
        kernels[0] = kernels[0][:, :, ::-1]
    for own, arrays in values:
        own.set_weights(arrays)
    filled = {own.name for own, _ in values}
    new = [name for name, layer in layers.items() if layer.weights and name not in filled]
    log.info(
        "loaded weights of %d layers from %s (sha256 %s); newly initialized: %s",
        len(values), file, files.sha256(file), ", ".join(new),
    )  # fmt: skip


def _published(name: str, application: Application, file: Path) -> tuple[keras.Model, dict[str, str]]:
    """Build the published network with the file's weights; returns it and our names of its layers."""
    image, reasons = (NETWORKS[name].image_size, NETWORKS[name].image_size, 3), []
    for top in (True, False):
        network = application.make(weights=None, input_shape=image, include_top=top, classes=CLASSES)
        try:
            # Keras only warns when it skips layers, so make its warnings errors.
            with warnings.catch_warnings(action="error", category=UserWarning):
                network.load_weights(file)
            return network, layer_names(network, application.classifier)
        except (OSError, ValueError, KeyError, UserWarning) as error:
            reasons.append(" ".join(str(error).split()))
    raise ConfigError(
        f"model.weights: {file} does not hold the weights of {name}; "
        f"read with its head: {reasons[0]}; without: {reasons[1]}"
    )


def _values(file: Path, own: keras.Layer, published: keras.Layer, name: str) -> list[np.ndarray]:
    """The weights of a published layer, with their shapes checked."""
    values: list[np.ndarray] = published.get_weights()
    expected, got = [tuple(weight.shape) for weight in own.weights], [value.shape for value in values]
    if expected != got:
        raise ConfigError(
            f"model.weights: layer {own.name} needs weights of shape {expected}, {file} has {got}; "
            f"they fit images of 3 channels, and where the net is fully connected (VGG) of "
            f"{NETWORKS[name].image_size} pixels a side, unless the file is one without top"
        )
    return values
