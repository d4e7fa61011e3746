# Origin: research/slim/nets and tutorials/image/cifar10 of github.com/tensorflow/models (Apache-2.0):
# names of variables.
"""Checkpoints of the replaced programs (TensorFlow 1), and our names of their variables."""

import logging
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate, count
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

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
MOBILENET_LOGITS = {"logits": "Logits/Conv2d_1c_1x1"}
# The cell before the auxiliary classifier. Normalizations have names of their own in these networks.
NASNETS = {"nasnet_cifar": 11, "nasnet_mobile": 7, "nasnet_large": 11, "pnasnet_mobile": 5, "pnasnet_large": 7}

# Scope of a network, and the scopes below it whose layers have other names here.
SCOPES: dict[str, tuple[str, dict[str, str]]] = {
    "mnist_cnn": ("", {"conv1": "conv2d", "conv2": "conv2d_1", "logits": "dense_1"}),
    "cifar10_tutorial": ("", {"logits": "softmax_linear"}),
    "lenet": ("LeNet", {"logits": "fc4"}),
    "cifarnet": ("CifarNet", {}),
    **{name: (name, {"logits": "fc8"}) for name in ("alexnet_v2", "overfeat", "vgg_a")},
    **{
        name: (name, {r"block(\d)_conv(\d)": r"conv\1/conv\1_\2", "fc1": "fc6", "fc2": "fc7", "logits": "fc8"})
        for name in ("vgg_16", "vgg_19")
    },
    "inception_v1": ("InceptionV1", {"logits": "Logits/Conv2d_0c_1x1"}),
    "inception_v2": ("InceptionV2", {"logits": "Logits/Conv2d_1c_1x1"}),
    "inception_v3": (
        "InceptionV3",
        {
            "logits": "Logits/Conv2d_1c_1x1",
            "aux_logits_conv1": "AuxLogits/Conv2d_1b_1x1",
            "aux_logits_conv2": "AuxLogits/Conv2d_2a_5x5",
            "aux_logits": "AuxLogits/Conv2d_2b_1x1",
        },
    ),
    "inception_v4": (
        "InceptionV4",
        {
            "logits": "Logits/Logits",
            "aux_logits_conv1": "AuxLogits/Conv2d_1b_1x1",
            "aux_logits_conv2": "AuxLogits/Conv2d_2a",
            "aux_logits": "AuxLogits/Aux_logits",
        },
    ),
    "inception_resnet_v2": (
        "InceptionResnetV2",
        {
            r"block35_(\d+)_conv": r"Repeat/block35_\1/Conv2d_1x1",
            r"block17_(\d+)_conv": r"Repeat_1/block17_\1/Conv2d_1x1",
            "block8_10_conv": "Block8/Conv2d_1x1",
            r"block8_(\d+)_conv": r"Repeat_2/block8_\1/Conv2d_1x1",
            "conv_7b": "Conv2d_7b_1x1",
            "logits": "Logits/Logits",
            "aux_logits_conv1": "AuxLogits/Conv2d_1b_1x1",
            "aux_logits_conv2": "AuxLogits/Conv2d_2a_5x5",
            "aux_logits": "AuxLogits/Logits",
        },
    ),
    **{
        f"resnet_{version}_{depth}": (f"resnet_{version}_{depth}", {})
        for version in ("v1", "v2")
        for depth in (50, 101, 152, 200)
    },
    **{
        name: (
            "",
            {
                "logits": "final_layer/FC",
                "aux_logits_conv1": f"aux_{cell}/aux_logits/proj",
                r"aux_logits_conv1\.BatchNorm": f"aux_{cell}/aux_logits/aux_bn0",
                "aux_logits_conv2": f"aux_{cell}/aux_logits/Conv",
                r"aux_logits_conv2\.BatchNorm": f"aux_{cell}/aux_logits/aux_bn1",
                "aux_logits": f"aux_{cell}/aux_logits/FC",
            },
        )
        for name, cell in NASNETS.items()
    },
    **{
        f"mobilenet_v1{width}": (
            "MobilenetV1",
            {
                "conv1": "Conv2d_0",
                r"conv_dw_(\d+)": r"Conv2d_\1_depthwise",
                r"conv_pw_(\d+)": r"Conv2d_\1_pointwise",
                **MOBILENET_LOGITS,
            },
        )
        for width in ("", "_075", "_050", "_025")
    },
    **{
        f"mobilenet_v2{width}": (
            "MobilenetV2",
            {
                "Conv1": "Conv",
                r"block_(\d+)_(\w+)": r"expanded_conv_\1/\2",
                r"expanded_conv_(\w+)": r"expanded_conv/\1",
                **MOBILENET_LOGITS,
            },
        )
        for width in ("", "_140", "_130", "_075", "_050", "_035")
    },
    **{
        f"mobilenet_v3_{size}": (
            "MobilenetV3",
            {
                r"conv(_\d)?": r"Conv\1",
                r"expanded_conv(_\d+)?_squeeze_excite_conv(_1)?": r"expanded_conv\1/squeeze_excite/Conv\2",
                r"expanded_conv(_\d+)?_(\w+)": r"expanded_conv\1/\2",
                **MOBILENET_LOGITS,
            },
        )
        for size in ("large", "large_075", "small", "small_075")
    },
}

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
        owned = {
            name for name in names if any(each in names for each in accumulate(name.split("/")[:-1], JOINED))
        }
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
            f"{OPTION}: a checkpoint of TensorFlow 1 is read for {', '.join(SCOPES)}, and not for "
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


def variables(model: keras.Model) -> dict[str, str]:
    """Map the paths of the model's variables to their original names; empty if no program has the network."""
    if model.name not in SCOPES:
        return {}
    scope, renamed = SCOPES[model.name]
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
