"""Weights pretrained on ImageNet, from a local file of Keras Applications or KerasHub."""

import logging
import warnings
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import h5py
import keras
import numpy as np
from keras import applications

from perennial.base import files
from perennial.base.config.networks import NETWORKS
from perennial.base.errors import ConfigError
from perennial.model import models
from perennial.model.models.architecture import AUX_LOGITS
from perennial.model.models.keras_applications import APPLICATIONS, layer_names
from perennial.model.models.vision_transformers import TRANSFORMERS

log = logging.getLogger(__name__)
CLASSES = 1000  # of the published heads
# Keras converted slim's weights of these networks. They are slim's here; Keras' have other poolings.
NASNETS = {"nasnet_mobile": applications.NASNetMobile, "nasnet_large": applications.NASNetLarge}
# Builds each network as it was published.
MAKERS: dict[str, Callable[..., keras.Model]] = {
    **{name: application.make for name, application in APPLICATIONS.items()},
    **NASNETS,
}


def load(model: keras.Model, file: Path) -> None:
    """Load all weights except those of the head from a file that Keras or KerasHub publishes.

    A file without top also leaves the layers just before the head unchanged. The files have no checksum, so the
    log gives the SHA-256 of the file.
    """
    if model.name in TRANSFORMERS:
        values = TRANSFORMERS[model.name].published(model, file)
    elif model.name in MAKERS:
        values = _of_layers(model, file)
    else:
        raise ConfigError(
            f"model.weights must be null for {model.name}, got {file}: it is not in Keras Applications"
        )
    found = [weight for weight in model.weights if weight.path in values]
    for weight in found:
        if (expected := tuple(weight.shape)) != (got := values[weight.path].shape):
            raise ConfigError(
                f"model.weights: {weight.path} of {model.name} needs the shape {expected}, {file} has {got}; "
                f"its weights fit images of 3 channels, and where the net is fully connected (VGG) of "
                f"{NETWORKS[model.name].image_size} pixels a side, unless the file is one without top"
            )
    for weight in found:
        weight.assign(values[weight.path])
    new = dict.fromkeys(each.path.partition("/")[0] for each in model.weights if each.path not in values)
    log.info(
        "loaded %d weights from %s (sha256 %s); newly initialized: %s",
        len(found), file, files.sha256(file), ", ".join(new),
    )  # fmt: skip


def _of_layers(model: keras.Model, file: Path) -> dict[str, np.ndarray]:
    """The weights in a file of Keras Applications but for the head, by our paths of them."""
    published, names = _published(model, file)
    layers = {layer.name: layer for layer in model.layers}
    head = {name for name in layers for pattern in models.named(model.name).head if fnmatchcase(name, pattern)}
    pairs = [
        (layers[names[layer.name]], layer)
        for layer in published.layers
        if layer.weights and names[layer.name] in layers.keys() - head
    ]
    found = {
        weight.path: value
        for own, layer in pairs
        for weight, value in zip(own.weights, layer.get_weights(), strict=True)
    }
    application = APPLICATIONS.get(model.name)
    if application and application.bgr:  # the weights expect BGR, our images are RGB
        kernel, *_ = pairs[0][0].weights
        found[kernel.path] = found[kernel.path][:, :, ::-1]
    return found


def _published(model: keras.Model, file: Path) -> tuple[keras.Model, dict[str, str]]:
    """Build the published network with the file's weights; returns it and our names of its layers."""
    name, reasons = model.name, dict[bool, str]()
    image = (NETWORKS[name].image_size, NETWORKS[name].image_size, 3)
    first = _may_have_top(file)
    for top in (first, not first):
        network = MAKERS[name](weights=None, input_shape=image, include_top=top, classes=CLASSES)
        try:
            # Keras only warns when it skips layers, so make its warnings errors.
            with warnings.catch_warnings(action="error", category=UserWarning):
                network.load_weights(file)
        except (OSError, ValueError, KeyError, UserWarning) as error:
            reasons[top] = " ".join(str(error).split())
            continue
        if name in NASNETS:
            return network, _names_in_nasnet(network, model)
        return network, layer_names(network, APPLICATIONS[name].classifier)
    raise ConfigError(
        f"model.weights: {file} does not hold the weights of {name}; "
        f"read with its head: {reasons[True]}; without: {reasons[False]}"
    )


def _may_have_top(file: Path) -> bool:
    """Whether a file may hold a classifier, by the names of its layers; decides what is built first."""
    try:
        with h5py.File(file) as opened:
            stored = opened.get("model_weights", opened).attrs.get("layer_names")
    except OSError:
        return True
    names = {name if isinstance(name, str) else name.decode() for name in ([] if stored is None else stored)}
    return not names or bool(names & {"predictions", "logits", "Logits"})


def _names_in_nasnet(network: keras.Model, model: keras.Model) -> dict[str, str]:
    """Map the names of the layers with weights to ours: both networks list them in one order, the head last."""
    theirs, ours = ([layer.name for layer in each.layers if layer.weights] for each in (network, model))
    return dict(zip(theirs, (name for name in ours if not name.startswith(AUX_LOGITS)), strict=False))
