# Origin: research/slim/nets/{alexnet,overfeat,vgg}.py of github.com/tensorflow/models (Apache-2.0):
# the networks and the names of their layers.
"""AlexNet v2, OverFeat and VGG A as slim builds them: sequences of convolutions with biases and poolings."""

from dataclasses import dataclass

import keras
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import LOGITS, Architecture, Shape
from perennial.model.models.slim_layers import Convolution, Initial, dense, dropped, model, truncated, xavier

WEIGHT_DECAY = 5e-4


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A network written as a table, with one text per layer.

    "conv2 192 5" is a convolution with 192 filters of 5x5; "conv1 64 11 /4 valid" has stride 4 and no padding;
    "pool1 3" is max pooling over 3x3 with stride 2; "fc6 4096" is a dense layer followed by dropout.
    """

    layers: tuple[str, ...]
    bias: float = 0.0  # initial value, for convolutions
    dense_initial: Initial = xavier
    dense_bias: float = 0.0

    def network(self, image: Shape, classes: int, options: ModelConfig) -> keras.Model:
        """A model from float32 [N, height, width, channels] to logits [N, classes]."""
        convolution = Convolution(options, None, initial=xavier, bias=self.bias)
        x = images = keras.Input(image, name="image")
        for text in self.layers:
            name, number, *rest = text.split()
            if "pool" in name:
                x = layers.MaxPooling2D(int(number), strides=2, name=name)(x)
            elif "conv" in name:
                stride = next((int(each[1:]) for each in rest if each.startswith("/")), 1)
                padding = "valid" if "valid" in rest else "same"
                x = convolution(x, int(number), int(rest[0]), name, stride=stride, padding=padding)
            else:
                x = dense(x, int(number), name, initial=self.dense_initial, bias=self.dense_bias)
                x = dropped(layers.ReLU(name=f"{name}.Relu")(x), 0.5, options, f"dropout_{name}")
        return model(options, images, dense(x, classes, LOGITS, initial=self.dense_initial))


ALEXNET = Chain(
    layers=(
        "conv1 64 11 /4 valid", "pool1 3", "conv2 192 5", "pool2 3", "conv3 384 3", "conv4 384 3",
        "conv5 256 3", "pool5 3", "fc6 4096", "fc7 4096",
    ),
    bias=0.1,
    dense_initial=truncated(0.005),
    dense_bias=0.1,
)  # fmt: skip
OVERFEAT = Chain(
    layers=(
        "conv1 64 11 /4 valid", "pool1 2", "conv2 256 5 valid", "pool2 2", "conv3 512 3", "conv4 1024 3",
        "conv5 1024 3", "pool5 2", "fc6 3072", "fc7 4096",
    ),
    dense_initial=truncated(0.005),
    dense_bias=0.1,
)  # fmt: skip
VGG_A = Chain(
    layers=(
        "conv1.conv1_1 64 3", "pool1 2", "conv2.conv2_1 128 3", "pool2 2", "conv3.conv3_1 256 3",
        "conv3.conv3_2 256 3", "pool3 2", "conv4.conv4_1 512 3", "conv4.conv4_2 512 3", "pool4 2",
        "conv5.conv5_1 512 3", "conv5.conv5_2 512 3", "pool5 2", "fc6 4096", "fc7 4096",
    ),
)  # fmt: skip

ARCHITECTURES: dict[str, Architecture] = {
    "alexnet_v2": Architecture(network=ALEXNET.network, weight_decay=WEIGHT_DECAY),
    "overfeat": Architecture(network=OVERFEAT.network, weight_decay=WEIGHT_DECAY),
    "vgg_a": Architecture(network=VGG_A.network, weight_decay=WEIGHT_DECAY),
}
