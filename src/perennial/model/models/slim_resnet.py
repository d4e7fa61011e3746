# Origin: research/slim/nets/resnet_{v1,v2}.py of github.com/tensorflow/models (Apache-2.0):
# the networks and the names of their layers.
"""ResNet v1 and v2 as slim builds them: no biases before normalization, stride in the last unit of a block.

The networks of the same depths in Keras Applications (`keras_resnet_*`) have the stride in the first unit of a
block (v1) and different padding.
"""

from functools import partial

import keras
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import Architecture, Shape
from perennial.model.models.slim_layers import BatchNorm, Convolution, model, pooled_logits

NORM = BatchNorm(decay=0.997, epsilon=1e-5, scale=True)
UNITS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}


def v1(units: tuple[int, ...], image: Shape, classes: int, options: ModelConfig) -> keras.Model:
    """ResNet v1 (He et al. 2015): float32 [N, height, width, channels] to logits [N, classes]."""
    normalized = Convolution(options, NORM)
    images = keras.Input(image, name="image")
    x = _same(normalized, images, 64, 7, "conv1", stride=2)
    x = layers.MaxPooling2D(3, strides=2, padding="same", name="pool1")(x)
    for block, number, stride in _units(units):
        x = _unit_v1(x, 64 * 2**block, stride, f"block{block + 1}.unit_{number}.bottleneck_v1", normalized)
    return model(options, images, pooled_logits(x, classes, options, dropout=0.0))


def v2(units: tuple[int, ...], image: Shape, classes: int, options: ModelConfig) -> keras.Model:
    """ResNet v2 (He et al. 2016), with normalization before convolutions; shapes as in v1."""
    normalized, biased = Convolution(options, NORM), Convolution(options, None)
    images = keras.Input(image, name="image")
    x = _same(biased, images, 64, 7, "conv1", stride=2, relu=False)
    x = layers.MaxPooling2D(3, strides=2, padding="same", name="pool1")(x)
    for block, number, stride in _units(units):
        scope = f"block{block + 1}.unit_{number}.bottleneck_v2"
        x = _unit_v2(x, 64 * 2**block, stride, scope, normalized, biased)
    x = layers.ReLU(name="postnorm.Relu")(NORM.layer("postnorm", options)(x))
    return model(options, images, pooled_logits(x, classes, options, dropout=0.0))


def _units(units: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Block (from 0), unit (from 1) and stride of each unit; all blocks except the last end with stride 2."""
    return [
        (block, number, 2 if number == count and block + 1 < len(units) else 1)
        for block, count in enumerate(units)
        for number in range(1, count + 1)
    ]


def _unit_v1(
    x: keras.KerasTensor, depth: int, stride: int, scope: str, normalized: Convolution
) -> keras.KerasTensor:
    if x.shape[-1] == 4 * depth:
        shortcut = _every(x, stride, f"{scope}.shortcut")
    else:
        shortcut = normalized(x, 4 * depth, 1, f"{scope}.shortcut", stride=stride, relu=False)
    x = normalized(x, depth, 1, f"{scope}.conv1")
    x = _same(normalized, x, depth, 3, f"{scope}.conv2", stride=stride)
    x = normalized(x, 4 * depth, 1, f"{scope}.conv3", relu=False)
    return layers.ReLU(name=scope)(layers.Add(name=f"{scope}.add")([shortcut, x]))


def _unit_v2(
    x: keras.KerasTensor, depth: int, stride: int, scope: str, normalized: Convolution, biased: Convolution
) -> keras.KerasTensor:
    before = NORM.layer(f"{scope}.preact", normalized.options)(x)
    before = layers.ReLU(name=f"{scope}.preact.Relu")(before)
    if x.shape[-1] == 4 * depth:
        shortcut = _every(x, stride, f"{scope}.shortcut")
    else:
        shortcut = biased(before, 4 * depth, 1, f"{scope}.shortcut", stride=stride, relu=False)
    x = normalized(before, depth, 1, f"{scope}.conv1")
    x = _same(normalized, x, depth, 3, f"{scope}.conv2", stride=stride)
    x = biased(x, 4 * depth, 1, f"{scope}.conv3", relu=False)
    return layers.Add(name=scope)([shortcut, x])


def _every(x: keras.KerasTensor, stride: int, name: str) -> keras.KerasTensor:
    """Take every `stride`-th row and column."""
    return x if stride == 1 else layers.MaxPooling2D(1, strides=stride, name=name)(x)


def _same(
    convolution: Convolution,
    x: keras.KerasTensor,
    filters: int,
    size: int,
    name: str,
    *,
    stride: int,
    relu: bool = True,
) -> keras.KerasTensor:
    """Pad strided convolutions equally on both sides; TensorFlow's "same" padding depends on the size of x."""
    if stride > 1:
        x = layers.ZeroPadding2D(size // 2, name=f"{name}.Pad")(x)
    padding = "same" if stride == 1 else "valid"
    return convolution(x, filters, size, name, stride=stride, padding=padding, relu=relu)


ARCHITECTURES: dict[str, Architecture] = {
    f"resnet_{version}_{depth}": Architecture(network=partial(network, units), weight_decay=1e-4)
    for version, network in (("v1", v1), ("v2", v2))
    for depth, units in UNITS.items()
}
