# Origin: research/slim/nets/inception_{v1,v2,v4}.py of github.com/tensorflow/models (Apache-2.0):
# the networks and the names of their layers.
"""Inception v1, v2 and v4 as slim builds them; v3 is in keras_applications.py.

A branch is written as text: "Conv2d_0a_1x1:64 Conv2d_0b_3x3:96/2v" is a convolution with 64 filters of 1x1,
then one with 96 filters of 3x3 with stride 2 and without padding ("v"). "+" joins convolutions of the same
input.
"""

import re
from collections.abc import Callable, Sequence

import keras
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import AUX_LOGITS, LOGITS, Architecture, Shape
from perennial.model.models.slim_layers import (
    Auxiliary,
    BatchNorm,
    Convolution,
    Initial,
    fan_in,
    pooled_logits,
    truncated,
    xavier,
)

NORM = BatchNorm(decay=0.9997)
WEIGHT_DECAY, DROPOUT = 4e-5, 0.2
Branches = Sequence[str]
# Name, whose end is the height and width of the kernel or window; filters, none for a pooling; stride; padding.
STEP = re.compile(r"(\w+_(\d)x(\d))(?::(\d+))?(?:/(\d))?(v?)$")
Weights = Callable[[Sequence[str], int], Initial]  # initial weights for a step of a branch, by its position


def chain(
    x: keras.KerasTensor, steps: Sequence[str], scope: str, convolution: Convolution, weights: Weights
) -> keras.KerasTensor:
    """Apply steps in sequence; their layers are named below a scope ("": top level)."""
    for position, text in enumerate(steps):
        if "+" in text:
            parts = [chain(x, [each], scope, convolution, weights) for each in text.split("+")]
            x = layers.Concatenate(name=f"{scope}concat")(parts)
            continue
        ((step, height, width, filters, strides, unpadded),) = STEP.findall(text)
        size, stride, name = (int(height), int(width)), int(strides or 1), scope + step
        padding = "valid" if unpadded else "same"
        if filters:
            initial = weights(steps, position)
            x = convolution(x, int(filters), size, name, stride=stride, padding=padding, initial=initial)
        else:
            pool = layers.MaxPooling2D if step.startswith("Max") else layers.AveragePooling2D
            x = pool(size, strides=stride, padding=padding, name=name)(x)
    return x


def body(
    x: keras.KerasTensor, table: dict[str, str | Branches], convolution: Convolution, weights: Weights
) -> keras.KerasTensor:
    """Apply the layers of a table: a text is one step, branches are a module, which concatenates them."""
    for name, made in table.items():
        if isinstance(made, str):
            x = chain(x, [f"{name}{made}"], "", convolution, weights)
        else:
            ends = [
                chain(x, branch.split(), f"{name}.Branch_{number}.", convolution, weights)
                for number, branch in enumerate(made)
            ]
            x = layers.Concatenate(name=name)(ends)
    return x


def _v1_module(*filters: int, last: str = "Conv2d_0b_3x3") -> Branches:
    b0, b1, b1_3x3, b2, b2_3x3, b3 = filters
    return (
        f"Conv2d_0a_1x1:{b0}",
        f"Conv2d_0a_1x1:{b1} Conv2d_0b_3x3:{b1_3x3}",
        f"Conv2d_0a_1x1:{b2} {last}:{b2_3x3}",
        f"MaxPool_0a_3x3 Conv2d_0b_1x1:{b3}",
    )


V1: dict[str, str | Branches] = {
    "Conv2d_1a_7x7": ":64/2",
    "MaxPool_2a_3x3": "/2",
    "Conv2d_2b_1x1": ":64",
    "Conv2d_2c_3x3": ":192",
    "MaxPool_3a_3x3": "/2",
    "Mixed_3b": _v1_module(64, 96, 128, 16, 32, 32),
    "Mixed_3c": _v1_module(128, 128, 192, 32, 96, 64),
    "MaxPool_4a_3x3": "/2",
    "Mixed_4b": _v1_module(192, 96, 208, 16, 48, 64),
    "Mixed_4c": _v1_module(160, 112, 224, 24, 64, 64),
    "Mixed_4d": _v1_module(128, 128, 256, 24, 64, 64),
    "Mixed_4e": _v1_module(112, 144, 288, 32, 64, 64),
    "Mixed_4f": _v1_module(256, 160, 320, 32, 128, 128),
    "MaxPool_5a_2x2": "/2",
    "Mixed_5b": _v1_module(256, 160, 320, 32, 128, 128, last="Conv2d_0a_3x3"),
    "Mixed_5c": _v1_module(384, 192, 384, 48, 128, 128),
}


def v1(image: Shape, classes: int, options: ModelConfig) -> keras.Model:
    """Inception v1 (Szegedy et al. 2014) with batch normalization."""
    images, convolution = keras.Input(image, name="image"), Convolution(options, NORM)
    x = body(images, V1, convolution, lambda *_: truncated(0.01))
    return keras.Model(images, pooled_logits(x, classes, options, dropout=DROPOUT), name=options.name)


def _v2_module(*filters: int, pool: str = "AvgPool") -> Branches:
    b0, b1, b1_3x3, b2, b2_3x3, b3 = filters
    return (
        f"Conv2d_0a_1x1:{b0}",
        f"Conv2d_0a_1x1:{b1} Conv2d_0b_3x3:{b1_3x3}",
        f"Conv2d_0a_1x1:{b2} Conv2d_0b_3x3:{b2_3x3} Conv2d_0c_3x3:{b2_3x3}",
        f"{pool}_0a_3x3 Conv2d_0b_1x1:{b3}",
    )


def _v2_reduction(*filters: int) -> Branches:
    b0, b0_3x3, b1, b1_3x3 = filters
    return (
        f"Conv2d_0a_1x1:{b0} Conv2d_1a_3x3:{b0_3x3}/2",
        f"Conv2d_0a_1x1:{b1} Conv2d_0b_3x3:{b1_3x3} Conv2d_1a_3x3:{b1_3x3}/2",
        "MaxPool_1a_3x3/2",
    )


V2: dict[str, str | Branches] = {
    "MaxPool_2a_3x3": "/2",
    "Conv2d_2b_1x1": ":64",
    "Conv2d_2c_3x3": ":192",
    "MaxPool_3a_3x3": "/2",
    "Mixed_3b": _v2_module(64, 64, 64, 64, 96, 32),
    "Mixed_3c": _v2_module(64, 64, 96, 64, 96, 64),
    "Mixed_4a": _v2_reduction(128, 160, 64, 96),
    "Mixed_4b": _v2_module(224, 64, 96, 96, 128, 128),
    "Mixed_4c": _v2_module(192, 96, 128, 96, 128, 128),
    "Mixed_4d": _v2_module(160, 128, 160, 128, 160, 96),
    "Mixed_4e": _v2_module(96, 128, 192, 160, 192, 96),
    "Mixed_5a": _v2_reduction(128, 192, 192, 256),
    "Mixed_5b": _v2_module(352, 192, 320, 160, 224, 128),
    "Mixed_5c": _v2_module(352, 192, 320, 192, 224, 128, pool="MaxPool"),
}


def _v2_weights(steps: Sequence[str], position: int) -> Initial:
    """Slim's initial weights for 1x1 convolutions; special after a pooling and before other convolutions."""
    if "1x1" not in steps[position]:
        return fan_in
    if position or steps[0].startswith("Conv2d_2b"):
        return truncated(0.1)
    return truncated(0.09) if len(steps) > 1 else fan_in


def v2(image: Shape, classes: int, options: ModelConfig) -> keras.Model:
    """Inception v2 (Ioffe and Szegedy 2015); the first layer is separable, with biases and no L2."""
    images, convolution = keras.Input(image, name="image"), Convolution(options, NORM)
    weights = {"depthwise_initializer": truncated(1.0)(), "pointwise_initializer": truncated(1.0)()}
    separable = layers.SeparableConv2D(
        64, 7, strides=2, padding="same", depth_multiplier=8, name="Conv2d_1a_7x7", **weights
    )
    x = layers.ReLU(name="Conv2d_1a_7x7.Relu")(separable(images))
    x = body(x, V2, convolution, _v2_weights)
    return keras.Model(images, pooled_logits(x, classes, options, dropout=DROPOUT), name=options.name)


V4_STEM: dict[str, str | Branches] = {
    "Conv2d_1a_3x3": ":32/2v",
    "Conv2d_2a_3x3": ":32v",
    "Conv2d_2b_3x3": ":64",
    "Mixed_3a": ("MaxPool_0a_3x3/2v", "Conv2d_0a_3x3:96/2v"),
    "Mixed_4a": (
        "Conv2d_0a_1x1:64 Conv2d_1a_3x3:96v",
        "Conv2d_0a_1x1:64 Conv2d_0b_1x7:64 Conv2d_0c_7x1:64 Conv2d_1a_3x3:96v",
    ),
    "Mixed_5a": ("Conv2d_1a_3x3:192/2v", "MaxPool_1a_3x3/2v"),
}
V4_A: Branches = (
    "Conv2d_0a_1x1:96",
    "Conv2d_0a_1x1:64 Conv2d_0b_3x3:96",
    "Conv2d_0a_1x1:64 Conv2d_0b_3x3:96 Conv2d_0c_3x3:96",
    "AvgPool_0a_3x3 Conv2d_0b_1x1:96",
)
V4_REDUCTION_A: Branches = (
    "Conv2d_1a_3x3:384/2v",
    "Conv2d_0a_1x1:192 Conv2d_0b_3x3:224 Conv2d_1a_3x3:256/2v",
    "MaxPool_1a_3x3/2v",
)
V4_B: Branches = (
    "Conv2d_0a_1x1:384",
    "Conv2d_0a_1x1:192 Conv2d_0b_1x7:224 Conv2d_0c_7x1:256",
    "Conv2d_0a_1x1:192 Conv2d_0b_7x1:192 Conv2d_0c_1x7:224 Conv2d_0d_7x1:224 Conv2d_0e_1x7:256",
    "AvgPool_0a_3x3 Conv2d_0b_1x1:128",
)
V4_REDUCTION_B: Branches = (
    "Conv2d_0a_1x1:192 Conv2d_1a_3x3:192/2v",
    "Conv2d_0a_1x1:256 Conv2d_0b_1x7:256 Conv2d_0c_7x1:320 Conv2d_1a_3x3:320/2v",
    "MaxPool_1a_3x3/2v",
)
V4_C: Branches = (
    "Conv2d_0a_1x1:256",
    "Conv2d_0a_1x1:384 Conv2d_0b_1x3:256+Conv2d_0c_3x1:256",
    "Conv2d_0a_1x1:384 Conv2d_0b_3x1:448 Conv2d_0c_1x3:512 Conv2d_0d_1x3:256+Conv2d_0e_3x1:256",
    "AvgPool_0a_3x3 Conv2d_0b_1x1:256",
)
V4_AUXILIARY = Auxiliary(layer="Mixed_6h", norm=NORM)
V4: dict[str, str | Branches] = (
    V4_STEM
    | dict.fromkeys((f"Mixed_5{letter}" for letter in "bcde"), V4_A)
    | {"Mixed_6a": V4_REDUCTION_A}
    | dict.fromkeys((f"Mixed_6{letter}" for letter in "bcdefgh"), V4_B)
    | {"Mixed_7a": V4_REDUCTION_B}
    | dict.fromkeys((f"Mixed_7{letter}" for letter in "bcd"), V4_C)
)


def v4(image: Shape, classes: int, options: ModelConfig) -> keras.Model:
    """Inception v4 (Szegedy et al. 2016) and its auxiliary classifier."""
    images, convolution = keras.Input(image, name="image"), Convolution(options, NORM)
    x = body(images, V4, convolution, lambda *_: fan_in)
    logits = pooled_logits(x, classes, options, dropout=DROPOUT, initial=xavier)
    auxiliary = V4_AUXILIARY.logits(keras.Model(images, x), classes, options)
    return keras.Model(images, {LOGITS: logits, AUX_LOGITS: auxiliary}, name=options.name)


ARCHITECTURES: dict[str, Architecture] = {
    "inception_v1": Architecture(network=v1, weight_decay=WEIGHT_DECAY),
    "inception_v2": Architecture(network=v2, weight_decay=WEIGHT_DECAY),
    "inception_v4": Architecture(network=v4, weight_decay=WEIGHT_DECAY, head=(LOGITS, f"{AUX_LOGITS}*")),
}
