"""Checkpoints of slim's networks that tf-slim lacks, computed here as research/slim/nets does."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support import slim_values

from perennial.config.training import WarmStartConfig
from perennial.models import logits, slim_checkpoint
from perennial.training import warm_start
from perennial.training.warm_start import StartWeights

CLASSES = 10
SLOW = {"inception_resnet_v2", "nasnet_cifar", "mobilenet_v2", "mobilenet_v2_140", "mobilenet_v3_large"}
SIZES = {"inception_resnet_v2": 299, "pnasnet_mobile": 224, "nasnet_cifar": 32}
# Stride and channels of the separable convolutions.
V1 = [(1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), *[(1, 512)] * 5, (2, 1024), (1, 1024)]
# Expansion, channels and stride of the blocks.
V2 = [
    (1, 16, 1), (6, 24, 2), (6, 24, 1), (6, 32, 2), *[(6, 32, 1)] * 2, (6, 64, 2), *[(6, 64, 1)] * 3,
    *[(6, 96, 1)] * 3, (6, 160, 2), *[(6, 160, 1)] * 2, (6, 320, 1),
]  # fmt: skip
# Expansion, channels, kernel, stride, whether squeeze and excite, whether hard swish.
V3 = {
    "large": [
        (1, 16, 3, 1, 0, 0), (4, 24, 3, 2, 0, 0), (3, 24, 3, 1, 0, 0), (3, 40, 5, 2, 1, 0), (3, 40, 5, 1, 1, 0),
        (3, 40, 5, 1, 1, 0), (6, 80, 3, 2, 0, 1), (2.5, 80, 3, 1, 0, 1), (184 / 80, 80, 3, 1, 0, 1),
        (184 / 80, 80, 3, 1, 0, 1), (6, 112, 3, 1, 1, 1), (6, 112, 3, 1, 1, 1), (6, 160, 5, 2, 1, 1),
        (6, 160, 5, 1, 1, 1), (6, 160, 5, 1, 1, 1),
    ],
    "small": [
        (1, 16, 3, 2, 1, 0), (72 / 16, 24, 3, 2, 0, 0), (88 / 24, 24, 3, 1, 0, 0), (4, 40, 5, 2, 1, 1),
        (6, 40, 5, 1, 1, 1), (6, 40, 5, 1, 1, 1), (3, 48, 5, 1, 1, 1), (3, 48, 5, 1, 1, 1), (6, 96, 5, 2, 1, 1),
        (6, 96, 5, 1, 1, 1), (6, 96, 5, 1, 1, 1),
    ],
}  # fmt: skip
LAST = {"large": (960, 1280), "small": (576, 1024)}
# Operations and states of the sums of a cell, in pairs, and the states that are used inside alone.
NORMAL = (
    "separable_5 separable_3 separable_5 separable_3 avg none avg avg separable_3 none",
    (0, 1, 1, 1, 0, 1, 1, 1, 0, 0),
    (0,),
)
REDUCTION = (
    "separable_5 separable_7 max separable_7 avg separable_5 none avg separable_3 max",
    (0, 1, 0, 1, 0, 1, 3, 2, 2, 0),
    (0, 1, 2),
)
PNASNET = (
    "separable_5 max separable_7 max separable_5 separable_3 separable_3 max separable_3 none",
    (1, 1, 0, 0, 0, 0, 4, 0, 1, 0),
    (0, 1),
)
Cell = tuple[str, tuple[int, ...], tuple[int, ...]]
Activation = Callable[[tf.Tensor], tf.Tensor]


def hard_swish(images: tf.Tensor) -> tf.Tensor:
    return images * tf.nn.relu6(images + 3) / 6


def divisible(channels: float) -> int:
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class Graph:
    """Computes a network, and keeps the variables that it used."""

    def __init__(self, scope: str, *, gamma: bool = True, epsilon: float = 0.001) -> None:
        self.scope, self.gamma, self.epsilon = scope, gamma, epsilon
        self.values: dict[str, np.ndarray] = {}

    def variable(self, name: str, *shape: int) -> np.ndarray:
        full = f"{self.scope}/{name}" if self.scope else name
        return self.values.setdefault(full, slim_values.weight(full, shape))

    def normalized(self, images: tf.Tensor, name: str) -> tf.Tensor:
        parts = ("moving_mean", "moving_variance", "beta", *(("gamma",) if self.gamma else ()))
        values = [self.variable(f"{name}/{part}", images.shape[-1]) for part in parts]
        return tf.nn.batch_normalization(images, *values, *(() if self.gamma else (None,)), self.epsilon)

    def conv(
        self,
        images: tf.Tensor,
        name: str,
        channels: int,
        activation: Activation = tf.identity,
        *,
        size: int | tuple[int, int] = 1,
        stride: int = 1,
        padding: str = "SAME",
        biases: bool = False,
        norm: str = "",
    ) -> tf.Tensor:
        height, width = (size, size) if isinstance(size, int) else size
        weights = self.variable(f"{name}/weights", height, width, images.shape[-1], channels)
        found = tf.nn.conv2d(images, weights, stride, padding)
        if biases:
            return activation(found + self.variable(f"{name}/biases", channels))
        return activation(self.normalized(found, norm or f"{name}/BatchNorm"))

    def depthwise(
        self, images: tf.Tensor, name: str, activation: Activation, size: int, stride: int
    ) -> tf.Tensor:
        weights = self.variable(f"{name}/depthwise_weights", size, size, images.shape[-1], 1)
        found = tf.nn.depthwise_conv2d(images, weights, (1, stride, stride, 1), "SAME")
        return activation(self.normalized(found, f"{name}/BatchNorm"))

    def block(
        self,
        images: tf.Tensor,
        number: int,
        expansion: float,
        channels: int,
        activation: Activation,
        *,
        size: int = 3,
        stride: int,
        excite: bool = False,
    ) -> tf.Tensor:
        name = f"expanded_conv_{number}" if number else "expanded_conv"
        inner, found = divisible(images.shape[-1] * expansion), images
        if inner > images.shape[-1]:
            found = self.conv(found, f"{name}/expand", inner, activation)
        found = self.depthwise(found, f"{name}/depthwise", activation, size, stride)
        if excite:
            pooled = tf.reduce_mean(found, (1, 2), keepdims=True)
            narrow = divisible(found.shape[-1] / 4)
            squeezed = self.conv(pooled, f"{name}/squeeze_excite/Conv", narrow, tf.nn.relu, biases=True)
            wide = self.conv(squeezed, f"{name}/squeeze_excite/Conv_1", found.shape[-1], biases=True)
            found = found * tf.nn.relu6(wide + 3) / 6
        found = self.conv(found, f"{name}/project", channels)
        return found + images if found.shape == images.shape else found

    def branch(self, images: tf.Tensor, name: str, *steps: tuple[int, str], stride: int = 1) -> tf.Tensor:
        """Convolutions, given by channels and the rest of their names, which end with the size of the kernel.

        The last one has the stride, and then no padding.
        """
        for number, (channels, step) in enumerate(steps, 1):
            strided = stride if number == len(steps) else 1
            size = (int(step[-3]), int(step[-1]))
            padding = "VALID" if strided > 1 else "SAME"
            scope = f"{name}/Conv2d_{step}"
            images = self.conv(images, scope, channels, tf.nn.relu, size=size, stride=strided, padding=padding)
        return images

    def residual(
        self, images: tf.Tensor, name: str, scale: float, branches: list[list[tuple[int, str]]]
    ) -> tf.Tensor:
        """A block of Inception-ResNet, before its activation."""
        parts = [
            self.branch(images, f"{name}/Branch_{number}", *steps) for number, steps in enumerate(branches)
        ]
        added = self.conv(tf.concat(parts, -1), f"{name}/Conv2d_1x1", images.shape[-1], biases=True)
        return images + scale * added


def pooled_logits(graph: Graph, images: tf.Tensor) -> tf.Tensor:
    pooled = tf.reduce_mean(images, (1, 2), keepdims=True)
    return graph.conv(pooled, "Logits/Conv2d_1c_1x1", CLASSES, biases=True)[:, 0, 0]


def dense(graph: Graph, features: tf.Tensor, name: str) -> tf.Tensor:
    weights = graph.variable(f"{name}/weights", features.shape[-1], CLASSES)
    return features @ weights + graph.variable(f"{name}/biases", CLASSES)


def mobilenet_v1(graph: Graph, images: tf.Tensor, width: float) -> tf.Tensor:
    images = graph.conv(images, "Conv2d_0", int(32 * width), tf.nn.relu6, size=3, stride=2)
    for number, (stride, channels) in enumerate(V1, 1):
        images = graph.depthwise(images, f"Conv2d_{number}_depthwise", tf.nn.relu6, 3, stride)
        images = graph.conv(images, f"Conv2d_{number}_pointwise", int(channels * width), tf.nn.relu6)
    return pooled_logits(graph, images)


def mobilenet_v2(graph: Graph, images: tf.Tensor, width: float) -> tf.Tensor:
    images = graph.conv(images, "Conv", divisible(32 * width), tf.nn.relu6, size=3, stride=2)
    for number, (expansion, channels, stride) in enumerate(V2):
        kept = divisible(channels * width)
        images = graph.block(images, number, expansion, kept, tf.nn.relu6, stride=stride)
    return pooled_logits(graph, graph.conv(images, "Conv_1", divisible(1280 * max(1, width)), tf.nn.relu6))


def mobilenet_v3(graph: Graph, images: tf.Tensor, kind: str) -> tf.Tensor:
    images = graph.conv(images, "Conv", 16, hard_swish, size=3, stride=2)
    for number, (expansion, channels, size, stride, excite, swish) in enumerate(V3[kind]):
        activation = hard_swish if swish else tf.nn.relu
        images = graph.block(
            images, number, expansion, channels, activation, size=size, stride=stride, excite=bool(excite)
        )
    channels, wide = LAST[kind]
    images = tf.reduce_mean(graph.conv(images, "Conv_1", channels, hard_swish), (1, 2), keepdims=True)
    return pooled_logits(graph, graph.conv(images, "Conv_2", wide, hard_swish, biases=True))


def inception_resnet_v2(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    def step(name: str, channels: int, size: int, stride: int = 1, padding: str = "VALID") -> None:
        nonlocal images
        images = graph.conv(images, name, channels, tf.nn.relu, size=size, stride=stride, padding=padding)

    step("Conv2d_1a_3x3", 32, 3, 2)
    step("Conv2d_2a_3x3", 32, 3)
    step("Conv2d_2b_3x3", 64, 3, padding="SAME")
    images = tf.nn.max_pool2d(images, 3, 2, "VALID")
    step("Conv2d_3b_1x1", 80, 1)
    step("Conv2d_4a_3x3", 192, 3)
    images = tf.nn.max_pool2d(images, 3, 2, "VALID")
    averages = tf.nn.avg_pool2d(images, 3, 1, "SAME")
    parts = [
        graph.branch(images, "Mixed_5b/Branch_0", (96, "1x1")),
        graph.branch(images, "Mixed_5b/Branch_1", (48, "0a_1x1"), (64, "0b_5x5")),
        graph.branch(images, "Mixed_5b/Branch_2", (64, "0a_1x1"), (96, "0b_3x3"), (96, "0c_3x3")),
        graph.branch(averages, "Mixed_5b/Branch_3", (64, "0b_1x1")),
    ]
    images = tf.concat(parts, -1)
    block = [[(32, "1x1")], [(32, "0a_1x1"), (32, "0b_3x3")], [(32, "0a_1x1"), (48, "0b_3x3"), (64, "0c_3x3")]]
    for number in range(1, 11):
        images = tf.nn.relu(graph.residual(images, f"Repeat/block35_{number}", 0.17, block))
    parts = [
        graph.branch(images, "Mixed_6a/Branch_0", (384, "1a_3x3"), stride=2),
        graph.branch(images, "Mixed_6a/Branch_1", (256, "0a_1x1"), (256, "0b_3x3"), (384, "1a_3x3"), stride=2),
        tf.nn.max_pool2d(images, 3, 2, "VALID"),
    ]
    images = tf.concat(parts, -1)
    block = [[(192, "1x1")], [(128, "0a_1x1"), (160, "0b_1x7"), (192, "0c_7x1")]]
    for number in range(1, 21):
        images = tf.nn.relu(graph.residual(images, f"Repeat_1/block17_{number}", 0.1, block))
    auxiliary = tf.nn.avg_pool2d(images, 5, 3, "VALID")
    auxiliary = graph.branch(auxiliary, "AuxLogits", (128, "1b_1x1"))
    auxiliary = graph.conv(auxiliary, "AuxLogits/Conv2d_2a_5x5", 768, tf.nn.relu, size=5, padding="VALID")
    dense(graph, auxiliary[:, 0, 0], "AuxLogits/Logits")
    parts = [
        graph.branch(images, "Mixed_7a/Branch_0", (256, "0a_1x1"), (384, "1a_3x3"), stride=2),
        graph.branch(images, "Mixed_7a/Branch_1", (256, "0a_1x1"), (288, "1a_3x3"), stride=2),
        graph.branch(images, "Mixed_7a/Branch_2", (256, "0a_1x1"), (288, "0b_3x3"), (320, "1a_3x3"), stride=2),
        tf.nn.max_pool2d(images, 3, 2, "VALID"),
    ]
    images = tf.concat(parts, -1)
    block = [[(192, "1x1")], [(192, "0a_1x1"), (224, "0b_1x3"), (256, "0c_3x1")]]
    for number in range(1, 10):
        images = tf.nn.relu(graph.residual(images, f"Repeat_2/block8_{number}", 0.2, block))
    images = graph.residual(images, "Block8", 1, block)
    step("Conv2d_7b_1x1", 1536, 1)
    return dense(graph, tf.reduce_mean(images, (1, 2)), "Logits/Logits")


def separable(graph: Graph, images: tf.Tensor, scope: str, size: int, filters: int, stride: int) -> tf.Tensor:
    for number in (1, 2):
        name, channels = f"{size}x{size}_{number}", images.shape[-1]
        deep = graph.variable(f"{scope}/separable_{name}/depthwise_weights", size, size, channels, 1)
        wide = graph.variable(f"{scope}/separable_{name}/pointwise_weights", 1, 1, channels, filters)
        steps = (1, stride, stride, 1) if number == 1 else (1, 1, 1, 1)
        images = tf.nn.separable_conv2d(tf.nn.relu(images), deep, wide, steps, "SAME")
        images = graph.normalized(images, f"{scope}/bn_sep_{name}")
    return images


def reduced(graph: Graph, images: tf.Tensor, scope: str, filters: int, stride: int) -> tf.Tensor:
    if stride == 1:
        return graph.conv(images, f"{scope}/path_conv", filters, norm=f"{scope}/path_bn")
    odd = tf.pad(images, ((0, 0), (0, 1), (0, 1), (0, 0)))[:, 1:, 1:]
    paths = []
    for number, part in enumerate((images, odd), 1):
        weights = graph.variable(f"{scope}/path{number}_conv/weights", 1, 1, images.shape[-1], filters // 2)
        paths.append(tf.nn.conv2d(part[:, ::2, ::2], weights, 1, "VALID"))
    both = tf.concat([path[:, : paths[0].shape[1], : paths[0].shape[2]] for path in paths], -1)
    return graph.normalized(both, f"{scope}/final_path_bn")


def operated(
    graph: Graph, images: tf.Tensor, operation: str, scope: str, filters: int, stride: int
) -> tf.Tensor:
    if operation.startswith("separable"):
        return separable(graph, images, scope, int(operation[-1]), filters, stride)
    fits = images.shape[-1] == filters
    if operation == "none":
        if stride == 1 and fits:
            return images
        return graph.conv(tf.nn.relu(images), f"{scope}/1x1", filters, stride=stride, norm=f"{scope}/bn_1")
    pool = tf.nn.max_pool2d if operation == "max" else tf.nn.avg_pool2d
    images = pool(images, 3, stride, "SAME")
    return images if fits else graph.conv(images, f"{scope}/1x1", filters, norm=f"{scope}/bn_1")


def cell_of_nasnet(
    graph: Graph, cell: Cell, cells: list[tf.Tensor], scope: str, filters: int, stride: int
) -> tf.Tensor:
    operations, states, inside = cell
    before, last = cells[-2:]
    if before is None:
        before = last
    elif before.shape[2] != last.shape[2]:
        before = reduced(graph, tf.nn.relu(before), scope, filters, 2)
    elif before.shape[-1] != filters:
        before = graph.conv(tf.nn.relu(before), f"{scope}/prev_1x1", filters, norm=f"{scope}/prev_bn")
    first = graph.conv(tf.nn.relu(last), f"{scope}/1x1", filters, norm=f"{scope}/beginning_bn")
    found, names = [first, before], operations.split()
    for number in range(5):
        sides = []
        for side, place in (("left", 2 * number), ("right", 2 * number + 1)):
            name, state = f"{scope}/comb_iter_{number}/{side}", states[place]
            step = stride if state < 2 else 1
            sides.append(operated(graph, found[state], names[place], name, filters, step))
        found.append(sides[0] + sides[1])
    for number, each in enumerate(found):
        if number not in inside and each.shape != found[-1].shape:
            step = 1 if each.shape[2] == found[-1].shape[2] else 2
            name = f"{scope}/cell_output/reduction_{number}"
            found[number] = reduced(graph, each, name, found[-1].shape[-1], step)
    return tf.concat([each for number, each in enumerate(found) if number not in inside], -1)


def classified(graph: Graph, cells: list[tf.Tensor], auxiliary: int, auxiliary_cell: tf.Tensor) -> tf.Tensor:
    """The logits of a NASNet from its last cell; uses the variables of its auxiliary classifier, too."""
    scope = f"aux_{auxiliary}/aux_logits"
    images = tf.nn.avg_pool2d(tf.nn.relu(auxiliary_cell), 5, 3, "VALID")
    images = graph.conv(images, f"{scope}/proj", 128, tf.nn.relu, norm=f"{scope}/aux_bn0")
    size = (images.shape[1], images.shape[2])
    norm = f"{scope}/aux_bn1"
    images = graph.conv(images, f"{scope}/Conv", 768, tf.nn.relu, size=size, padding="VALID", norm=norm)
    dense(graph, images[:, 0, 0], f"{scope}/FC")
    return dense(graph, tf.reduce_mean(tf.nn.relu(cells[-1]), (1, 2)), "final_layer/FC")


def nasnet_cifar(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    cells = [None, graph.conv(images, "l1_stem_3x3", 96, size=3, norm="l1_stem_bn")]
    filters, numbered = 32, []
    for number in range(18):
        if number in (6, 12):
            filters *= 2
            scope = f"reduction_cell_{number // 6 - 1}"
            cells.append(cell_of_nasnet(graph, REDUCTION, cells, scope, filters, 2))
        cells.append(cell_of_nasnet(graph, NORMAL, cells, f"cell_{number}", filters, 1))
        numbered.append(cells[-1])
    return classified(graph, cells, 11, numbered[11])


def pnasnet_mobile(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    first = graph.conv(images, "conv0", 32, size=3, stride=2, padding="VALID", norm="conv0_bn")
    cells: list[tf.Tensor] = [None, first]
    for number, part in enumerate((4, 2)):
        scope = f"cell_stem_{number}"
        cells.append(cell_of_nasnet(graph, PNASNET, cells, scope, 54 // part, 2))
    filters = 54
    for number in range(9):
        reduces = number in (3, 6)
        filters *= 1 + reduces
        stride, scope = 1 + reduces, f"cell_{number}"
        cells.append(cell_of_nasnet(graph, PNASNET, cells, scope, filters, stride))
    return classified(graph, cells, 5, cells[-4])


NETWORKS = {
    "nasnet_cifar": ("", nasnet_cifar, None),
    "pnasnet_mobile": ("", pnasnet_mobile, None),
    "inception_resnet_v2": ("InceptionResnetV2", inception_resnet_v2, None),
    "mobilenet_v1": ("MobilenetV1", mobilenet_v1, 1),
    "mobilenet_v1_050": ("MobilenetV1", mobilenet_v1, 0.5),
    "mobilenet_v2": ("MobilenetV2", mobilenet_v2, 1),
    "mobilenet_v2_035": ("MobilenetV2", mobilenet_v2, 0.35),
    "mobilenet_v2_140": ("MobilenetV2", mobilenet_v2, 1.4),
    "mobilenet_v3_large": ("MobilenetV3", mobilenet_v3, "large"),
    "mobilenet_v3_small": ("MobilenetV3", mobilenet_v3, "small"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NETWORKS]
)
def test_a_checkpoint_of_slim_gives_its_logits(build, tmp_path: Path, name: str) -> None:
    scope, network, variant = NETWORKS[name]
    graph = Graph(scope, gamma=name != "inception_resnet_v2", epsilon=1e-5 if name == "nasnet_cifar" else 1e-3)
    size = SIZES.get(name, 64)
    images = slim_values.images(size)
    expected = network(graph, tf.constant(images), variant).numpy()
    prefix, names = tmp_path / "model.ckpt", list(graph.values)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=list(graph.values.values()),
    )
    model = build(name, (size, size, 3))
    weights = slim_checkpoint.read(prefix)
    assert sorted(slim_checkpoint.variables(model).values()) == sorted(weights)
    start = StartWeights(imagenet=None, weights=weights, sha256="", slim=True)
    warm_start.begin(model, start, WarmStartConfig(path=str(prefix), exclude=[], ignore_missing=False))
    found = logits(model(images)).numpy()
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
