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
from perennial.model.models.slim_layers import BatchNorm, Convolution, pooled_logits

NORM = BatchNorm(decay=0.997, epsilon=1e-5, scale=True)
UNITS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}


def network(
    version: int, units: tuple[int, ...], image: Shape, classes: int, options: ModelConfig
) -> keras.Model:
    """ResNet v1 (He et al. 2015), or v2 (He et al. 2016), which normalizes before its convolutions.

    From float32 [N, height, width, channels] to logits [N, classes].
    """
    normalized = Convolution(options, NORM)
    last = normalized if version == 1 else Convolution(options, None)
    images = keras.Input(image, name="image")
    x = _same(last, images, 64, 7, "conv1", stride=2, relu=version == 1)
    x = layers.MaxPooling2D(3, strides=2, padding="same", name="pool1")(x)
    for block, count in enumerate(units):
        for number in range(1, count + 1):
            stride = 2 if number == count and block + 1 < len(units) else 1
            scope = f"block{block + 1}.unit_{number}.bottleneck_v{version}"
            x = _unit(x, 64 * 2**block, stride, scope, normalized, last, version=version)
    if version == 2:
        x = layers.ReLU(name="postnorm.Relu")(NORM.layer("postnorm", options)(x))
    return keras.Model(images, pooled_logits(x, classes, options, dropout=0.0), name=options.name)


def _unit(
    x: keras.KerasTensor,
    depth: int,
    stride: int,
    scope: str,
    normalized: Convolution,
    last: Convolution,
    *,
    version: int,
) -> keras.KerasTensor:
    """A bottleneck; `last`: what makes the outputs of its two branches."""
    before = x
    if version == 2:
        before = layers.ReLU(name=f"{scope}.preact.Relu")(NORM.layer(f"{scope}.preact", last.options)(x))
    if x.shape[-1] != 4 * depth:
        shortcut = last(before, 4 * depth, 1, f"{scope}.shortcut", stride=stride, relu=False)
    else:
        shortcut = x if stride == 1 else layers.MaxPooling2D(1, strides=stride, name=f"{scope}.shortcut")(x)
    inner = normalized(before, depth, 1, f"{scope}.conv1")
    inner = _same(normalized, inner, depth, 3, f"{scope}.conv2", stride=stride)
    inner = last(inner, 4 * depth, 1, f"{scope}.conv3", relu=False)
    if version == 2:
        return layers.Add(name=scope)([shortcut, inner])
    return layers.ReLU(name=scope)(layers.Add(name=f"{scope}.add")([shortcut, inner]))


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
    f"resnet_v{version}_{depth}": Architecture(network=partial(network, version, units), weight_decay=1e-4)
    for version in (1, 2)
    for depth, units in UNITS.items()
}
