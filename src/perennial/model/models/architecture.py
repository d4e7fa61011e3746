"""An architecture: the function that builds it, and its published settings; `config.networks` has its sizes."""

import fnmatch
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state  # Keras has no public way to restart the numbering of layers
from keras.src.models.functional import Functional
from numpy.typing import NDArray

from perennial.base.config.data import ModelConfig
from perennial.base.config.fields import is_component, short_name
from perennial.base.config.networks import network_facts
from perennial.base.errors import ConfigError, listed
from perennial.base.project import own_components

LOGITS, AUX_LOGITS = "logits", "aux_logits"
PROBABILITIES = (keras.activations.softmax, keras.activations.sigmoid)
NUMBERS = "object_name_uids"  # Keras' global attribute: how many objects have each name
Shape = tuple[int, int, int]  # height, width, channels


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """An image classifier that returns logits [N, classes] or, with several heads, a dictionary of them."""

    network: Callable[[Shape, int, ModelConfig], keras.Model]  # image, classes, options
    preprocessing: str = "rescale"  # of a component; NETWORKS has that of the others
    weight_decay: float = 0.0  # L2, as published
    decayed: tuple[str, ...] = ("*/kernel",)  # path patterns of the variables with an L2 penalty
    head: tuple[str, ...] = (LOGITS,)  # name patterns of the layers that depend on the classes
    # Sets weights of a new model from training images [N, height, width, channels], as the model gets them.
    prepare: Callable[[keras.Model, NDArray[np.float32]], None] | None = None

    def build(self, image: Shape, classes: int, options: ModelConfig) -> keras.Model:
        """Build the model with new weights, for images [height, width, channels].

        Equal calls give equal layer names and variable paths, in one process and across processes.
        """
        (height, width, _), known = image, network_facts(options.name)
        if min(height, width) < known.least_size:
            raise ConfigError(
                f"model.name: {options.name} needs images of at least {known.least_size} pixels a side, got "
                f"{height}x{width}; set preprocessing.image_size, published with {known.image_size}"
            )
        for option, network in {"conv_stddev": "cifar10_tutorial", "channels": "fast_cnn"}.items():
            given = getattr(options, option)
            if given is not None and options.name != network:
                raise ConfigError(
                    f"model.{option} must be null for {options.name}, got {given}: only {network} has it"
                )
        if is_component(options.name):
            return self._built_by_component(image, classes, options)
        return self.network(image, classes, options)

    def _built_by_component(self, image: Shape, classes: int, options: ModelConfig) -> keras.Model:
        """Build a network of the project itself, and check what all other code expects of a network."""
        own = options.model_copy(update={"name": short_name(options.name)})
        with _numbered_from_0():
            model = own_components.call(options.name, self.network, image, classes, own)
            if isinstance(model, keras.Sequential | Functional) and len(model.inputs or ()) == 1:
                model = _plain(model)
        if wrong := self._wrong(model, image, classes) or _unfit(model):
            raise own_components.refused(options.name, wrong)
        return model

    def _wrong(self, model: object, image: Shape, classes: int) -> str | None:
        """What is wrong with the model of a component, if anything is."""
        if not isinstance(model, keras.Model):
            return f"returned {own_components.described(model)}, expected a keras.Model"
        if not isinstance(model, Functional):
            return "returned a model without known shapes; begin it with keras.Input(image)"
        outputs, names = model.output, [layer.name for layer in model.layers]
        if len(model.inputs) != 1 or not isinstance(outputs, dict | keras.KerasTensor):
            return "returned a model with several inputs or a list of outputs; several can be a dictionary"
        taken = tuple(model.inputs[0].shape)
        given = outputs.get(LOGITS) if isinstance(outputs, dict) else outputs
        if taken != (None, *image):
            return f"takes images {taken}, expected {(None, *image)}"
        if given is None or tuple(given.shape) != (None, classes):
            found = f"a dictionary without {LOGITS}" if given is None else tuple(given.shape)
            return f"returns {found}, expected {LOGITS} {(None, classes)}: a number for each class"
        lacking = [pattern for pattern in self.head if not fnmatch.filter(names, pattern)]
        return f"has no layer named {lacking[0]}; name its last layer {LOGITS}" if lacking else None


def _unfit(model: keras.Model) -> str | None:
    """What is wrong with a model that freezes layers, or whose softmax or sigmoid the loss would repeat."""
    layers = model._flatten_layers(include_self=False)  # noqa: SLF001 - also those of models inside
    if frozen := [layer.name for layer in layers if layer.weights and not layer.trainable]:
        return f"freezes {listed(frozen, 3)}; let train.trainable name the layers that are trained instead"
    for layer in [each for each in model.layers if each.name == LOGITS] + model.layers[-1:]:
        if getattr(layer, "activation", None) in PROBABILITIES or isinstance(layer, keras.layers.Softmax):
            return f"returns probabilities, expected logits; leave out the activation of {layer.name!r}"
    return None


def _plain(model: keras.Model) -> keras.Model:
    """A model of layers with one input, and not a list of one, and the same for its output."""
    outputs = getattr(model, "_outputs_struct", model.outputs)
    if isinstance(outputs, list | tuple) and len(outputs) == 1:
        outputs = outputs[0]
    return keras.Model(model.inputs[0], outputs, name=model.name)


@contextmanager
def _numbered_from_0() -> Iterator[None]:
    """Let Keras name unnamed layers as in a new process, so that equal networks have equal names."""
    before = global_state.get_global_attribute(NUMBERS)
    global_state.set_global_attribute(NUMBERS, None)
    try:
        yield
    finally:
        global_state.set_global_attribute(NUMBERS, before)


def logits(outputs: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor:
    """Logits [N, classes] from the outputs of a model."""
    return outputs[LOGITS] if isinstance(outputs, dict) else outputs


def logits_of(model: keras.Model, inputs: tf.Tensor | list[tf.Tensor], *, mirror: bool = False) -> tf.Tensor:
    """Logits float32 [N, classes] of preprocessed images or other model inputs, without dropout.

    `mirror`: the means over each image and its mirror image, both in one batch.
    """
    if mirror:
        inputs = tf.concat([inputs, tf.reverse(inputs, [2])], axis=0)
    found = tf.cast(logits(model(inputs, training=False)), tf.float32)
    return tf.reduce_mean(tf.reshape(found, (2, -1, found.shape[-1])), axis=0) if mirror else found


def auxiliary_logits(outputs: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor | None:
    """Logits of the auxiliary classifier [N, classes], for training only; None without one."""
    return outputs[AUX_LOGITS] if isinstance(outputs, dict) else None
