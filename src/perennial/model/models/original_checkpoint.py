# Origin: research/slim/nets and tutorials/image/cifar10 of github.com/tensorflow/models (Apache-2.0):
# names of variables.
"""Checkpoints of the replaced programs (TensorFlow 1), and our names of their variables."""

import logging
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate, count
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base import documents
from perennial.base.errors import ConfigError, DataError, listed

log = logging.getLogger(__name__)
OPTION = "train.warm_start.path"
OTHERS = ("global_step", "beta1_power", "beta2_power")  # state of the training, not of the network
AVERAGE = "/ExponentialMovingAverage"  # after the name of the averaged variable
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"  # only in checkpoints of TensorFlow 2
SHOWN = 5
JOINED = "{}/{}".format
VARIABLES = {
    "kernel": "weights",
    "bias": "biases",
    "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
}  # gamma, beta, moving_mean and moving_variance have the same names
KERAS_NAMED = ("mnist_cnn",)  # whose variables are kernel and bias in the original, too
# Normalizations have names of their own in these networks.
NASNETS = ("nasnet_cifar", "nasnet_mobile", "nasnet_large", "pnasnet_mobile", "pnasnet_large")

_A = "0a_1x1 | 0a_1x1 0b_5x5 | 0a_1x1 0b_3x3 0c_3x3 | 0b_1x1"
_B = "0a_1x1 | 0a_1x1 0b_1x7 0c_7x1 | 0a_1x1 0b_7x1 0c_1x7 0d_7x1 0e_1x7 | 0b_1x1"
_35 = "1x1 | 0a_1x1 0b_3x3 | 0a_1x1 0b_3x3 0c_3x3"
_17 = "1x1 | 0a_1x1 0b_1x7 0c_7x1"
_8 = "1x1 | 0a_1x1 0b_1x3 0c_3x1"
# The convolutions that Keras numbers, in the order of its numbers; irregular names are slim's.
INCEPTION_V3 = {
    "": "1a_3x3 2a_3x3 2b_3x3 3b_1x1 4a_3x3",
    "Mixed_5b": _A,
    "Mixed_5c": "0a_1x1 | 0b_1x1 Conv_1_0c_5x5 | 0a_1x1 0b_3x3 0c_3x3 | 0b_1x1",
    "Mixed_5d": _A,
    "Mixed_6a": "1a_1x1 | 0a_1x1 0b_3x3 1a_1x1",
    **dict.fromkeys(("Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"), _B),
    "Mixed_7a": "0a_1x1 1a_3x3 | 0a_1x1 0b_1x7 0c_7x1 1a_3x3",
    "Mixed_7b": "0a_1x1 | 0a_1x1 0b_1x3 0b_3x1 | 0a_1x1 0b_3x3 0c_1x3 0d_3x1 | 0b_1x1",
    "Mixed_7c": "0a_1x1 | 0a_1x1 0b_1x3 0c_3x1 | 0a_1x1 0b_3x3 0c_1x3 0d_3x1 | 0b_1x1",
}
INCEPTION_RESNET_V2 = {
    "": "1a_3x3 2a_3x3 2b_3x3 3b_1x1 4a_3x3",
    "Mixed_5b": "1x1 | 0a_1x1 0b_5x5 | 0a_1x1 0b_3x3 0c_3x3 | 0b_1x1",
    **{f"Repeat/block35_{number}": _35 for number in range(1, 11)},
    "Mixed_6a": "1a_3x3 | 0a_1x1 0b_3x3 1a_3x3",
    **{f"Repeat_1/block17_{number}": _17 for number in range(1, 21)},
    "Mixed_7a": "0a_1x1 1a_3x3 | 0a_1x1 1a_3x3 | 0a_1x1 0b_3x3 1a_3x3",
    **{f"Repeat_2/block8_{number}": _8 for number in range(1, 10)},
    "Block8": _8,
}
NUMBERED = {"inception_v3": INCEPTION_V3, "inception_resnet_v2": INCEPTION_RESNET_V2}


class Checkpoint(NamedTuple):
    """The variables of a network by their original names, and the moving averages of those that have one."""

    weights: Mapping[str, NDArray[np.generic]]
    averages: Mapping[str, NDArray[np.generic]]


def read(prefix: Path) -> Checkpoint:
    """Read the variables of the network, without the state of the training."""
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = {*reader.get_variable_to_shape_map()} - {*OTHERS}
        averaged = {name.removesuffix(AVERAGE) for name in names if name.endswith(AVERAGE)}
        # The slots of a variable, such as /Momentum, have its name before their own.
        owned = {name for name in names if not names.isdisjoint(accumulate(name.split("/")[:-1], JOINED))}
        network = {name.removesuffix(AVERAGE) for name in names - owned}
        found = Checkpoint(
            weights={name: reader.get_tensor(name) for name in sorted(network & names)},
            averages={name: reader.get_tensor(name + AVERAGE) for name in sorted(network & averaged)},
        )
    except (tf.errors.OpError, LookupError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{OPTION}: not a whole checkpoint of TensorFlow 1: {reason}") from error
    if OBJECTS in found.weights:
        raise DataError(
            f"{OPTION}: a checkpoint of TensorFlow 2 (tf.train.Checkpoint), expected one of TensorFlow 1 "
            "(tf.train.Saver)"
        )
    return found


def by_path(model: keras.Model, weights: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Map weights by their original names to the paths and shapes of our model; logs those that it has not.

    Kernels that cover the whole grid are dense layers here; a weight of another size stays unchanged.
    """
    names = variables(model)
    if not names:
        raise ConfigError(
            f"{OPTION}: a checkpoint of TensorFlow 1 is read for {', '.join(scopes())}, and not for "
            f"model.name {model.name}"
        )
    found = {}
    for weight in model.weights:
        if (value := weights.get(names[weight.path])) is not None:
            fits = value.size == np.prod(weight.shape) and value.shape[-1] == weight.shape[-1]
            found[weight.path] = value.reshape(weight.shape) if fits else value
    if extra := sorted(weights.keys() - set(names.values())):
        log.info("the checkpoint also has %s, which %s has not", listed(extra, SHOWN), model.name)
    return found


@cache
def scopes() -> dict[str, tuple[str, dict[str, str]]]:
    """The scope of each network, and the scopes below it whose layers have other names here."""
    found = documents.parse_yaml(Path(__file__).with_name("original_names.yaml").read_text(encoding="utf-8"))
    return {
        name: (name if each["scope"] is None else each["scope"], each["layers"])
        for each in found
        for name in each["networks"]
    }


def variables(model: keras.Model) -> dict[str, str]:
    """Map the paths of the model's variables to their original names; empty if no program has the network."""
    if model.name not in (known := scopes()):
        return {}
    scope, renamed = known[model.name]
    numbered = dict(_numbered(NUMBERED.get(model.name, {})))
    found = {}
    for weight in model.weights:
        layer, _, variable = weight.path.rpartition("/")
        inner = ""
        if model.name not in NASNETS:
            layer, normalizes = re.subn(r"^bn_|(\.BatchNorm|_bn|_BN)$", "", layer)
            layer, numbered_norm = re.subn("^batch_normalization", "conv2d", layer)
            inner = "BatchNorm" if normalizes or numbered_norm else ""
        name = numbered.get(layer) or _renamed(layer, renamed)
        if variable == "kernel" and name.endswith("depthwise"):
            variable = "depthwise_kernel"
        own = variable if model.name in KERAS_NAMED else VARIABLES.get(variable, variable)
        parts = (scope, name, inner, own)
        found[weight.path] = "/".join(part for part in parts if part)
    return found


def _renamed(layer: str, renamed: dict[str, str]) -> str:
    for pattern, name in renamed.items():
        if match := re.fullmatch(pattern, layer):
            return match.expand(name)
    return layer.replace(".", "/")


def _numbered(modules: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Keras' layers conv2d, conv2d_1, ... and the scopes that slim has for them."""
    numbers = count()
    for module, text in modules.items():
        for branch, steps in enumerate(text.split(" | ")):
            # The last branch of a module starts with a pooling. In reductions it consists of a pooling alone.
            for step in steps.split():
                number, name = next(numbers), step if step.startswith("Conv") else f"Conv2d_{step}"
                yield (
                    f"conv2d_{number}" if number else "conv2d",
                    f"{module}/Branch_{branch}/{name}" if module else name,
                )
