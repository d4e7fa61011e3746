# Origin: research/slim/nets of github.com/tensorflow/models (Apache-2.0): the networks, to compare ours with.
"""Networks computed with plain TensorFlow as slim does (research/slim/nets), with slim's names of variables."""

from collections.abc import Callable

import numpy as np
import slim_values
import tensorflow as tf

CLASSES = 1001  # of the published checkpoints
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


def inception_v4(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    def pooled(images: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(images, 3, 2, "VALID")

    def averaged(images: tf.Tensor) -> tf.Tensor:
        return tf.nn.avg_pool2d(images, 3, 1, "SAME")

    def ends(images: tf.Tensor, name: str, first: str, second: str) -> list[tf.Tensor]:
        return [graph.branch(images, name, (256, first)), graph.branch(images, name, (256, second))]

    for name, channels, stride, padding in (
        ("1a_3x3", 32, 2, "VALID"), ("2a_3x3", 32, 1, "VALID"), ("2b_3x3", 64, 1, "SAME"),
    ):  # fmt: skip
        images = graph.conv(
            images, f"Conv2d_{name}", channels, tf.nn.relu, size=3, stride=stride, padding=padding
        )
    strided = graph.branch(images, "Mixed_3a/Branch_1", (96, "0a_3x3"), stride=2)
    images = tf.concat([pooled(images), strided], -1)
    wide = graph.branch(images, "Mixed_4a/Branch_1", (64, "0a_1x1"), (64, "0b_1x7"), (64, "0c_7x1"))
    parts = [
        (graph.branch(images, "Mixed_4a/Branch_0", (64, "0a_1x1")), "Mixed_4a/Branch_0"),
        (wide, "Mixed_4a/Branch_1"),
    ]
    unpadded = [
        graph.conv(part, f"{name}/Conv2d_1a_3x3", 96, tf.nn.relu, size=3, padding="VALID")
        for part, name in parts
    ]
    images = tf.concat(unpadded, -1)
    strided = graph.branch(images, "Mixed_5a/Branch_0", (192, "1a_3x3"), stride=2)
    images = tf.concat([strided, pooled(images)], -1)
    for name in ("Mixed_5b", "Mixed_5c", "Mixed_5d", "Mixed_5e"):
        parts = [
            graph.branch(images, f"{name}/Branch_0", (96, "0a_1x1")),
            graph.branch(images, f"{name}/Branch_1", (64, "0a_1x1"), (96, "0b_3x3")),
            graph.branch(images, f"{name}/Branch_2", (64, "0a_1x1"), (96, "0b_3x3"), (96, "0c_3x3")),
            graph.branch(averaged(images), f"{name}/Branch_3", (96, "0b_1x1")),
        ]
        images = tf.concat(parts, -1)
    steps = (192, "0a_1x1"), (224, "0b_3x3"), (256, "1a_3x3")
    parts = [
        graph.branch(images, "Mixed_6a/Branch_0", (384, "1a_3x3"), stride=2),
        graph.branch(images, "Mixed_6a/Branch_1", *steps, stride=2),
        pooled(images),
    ]
    images = tf.concat(parts, -1)
    long = (192, "0a_1x1"), (192, "0b_7x1"), (224, "0c_1x7"), (224, "0d_7x1"), (256, "0e_1x7")
    for letter in "bcdefgh":
        name = f"Mixed_6{letter}"
        parts = [
            graph.branch(images, f"{name}/Branch_0", (384, "0a_1x1")),
            graph.branch(images, f"{name}/Branch_1", (192, "0a_1x1"), (224, "0b_1x7"), (256, "0c_7x1")),
            graph.branch(images, f"{name}/Branch_2", *long),
            graph.branch(averaged(images), f"{name}/Branch_3", (128, "0b_1x1")),
        ]
        images = tf.concat(parts, -1)
    auxiliary = tf.nn.avg_pool2d(images, 5, 3, "VALID")
    auxiliary = graph.branch(auxiliary, "AuxLogits", (128, "1b_1x1"))
    auxiliary = graph.conv(auxiliary, "AuxLogits/Conv2d_2a", 768, tf.nn.relu, size=5, padding="VALID")
    dense(graph, auxiliary[:, 0, 0], "AuxLogits/Aux_logits")
    steps = (256, "0a_1x1"), (256, "0b_1x7"), (320, "0c_7x1"), (320, "1a_3x3")
    parts = [
        graph.branch(images, "Mixed_7a/Branch_0", (192, "0a_1x1"), (192, "1a_3x3"), stride=2),
        graph.branch(images, "Mixed_7a/Branch_1", *steps, stride=2),
        pooled(images),
    ]
    images = tf.concat(parts, -1)
    for name in ("Mixed_7b", "Mixed_7c", "Mixed_7d"):
        second = graph.branch(images, f"{name}/Branch_1", (384, "0a_1x1"))
        third = graph.branch(images, f"{name}/Branch_2", (384, "0a_1x1"), (448, "0b_3x1"), (512, "0c_1x3"))
        parts = [
            graph.branch(images, f"{name}/Branch_0", (256, "0a_1x1")),
            *ends(second, f"{name}/Branch_1", "0b_1x3", "0c_3x1"),
            *ends(third, f"{name}/Branch_2", "0d_1x3", "0e_3x1"),
            graph.branch(averaged(images), f"{name}/Branch_3", (256, "0b_1x1")),
        ]
        images = tf.concat(parts, -1)
    return dense(graph, tf.reduce_mean(images, (1, 2)), "Logits/Logits")
