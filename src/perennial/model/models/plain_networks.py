# Origin: official/mnist/mnist.py, research/slim/nets/{lenet,cifarnet,alexnet,overfeat,vgg}.py and
# tutorials/image/cifar10/cifar10.py of github.com/tensorflow/models (Apache-2.0): the networks, their initial
# weights and the names of their layers.
"""Networks that are one sequence of layers, of TensorFlow's own programs: four small ones, and three of slim.

They map float32 [N, height, width, channels] to logits [N, classes]. Every layer is named: Keras numbers
unnamed ones per process, so the files of equal models would differ.
"""

from dataclasses import dataclass

import keras
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import LOGITS, Architecture, Shape
from perennial.model.models.fast_cnn import FAST_CNN
from perennial.model.models.layers import Dropout, LocalResponseNormalization, chained
from perennial.model.models.slim_layers import Convolution, Initial, dense, dropped, truncated, xavier

CONV_STDDEV = 0.05  # of the CIFAR-10 networks; the first version of the tutorial had 1e-4


def mnist_cnn(classes: int, options: ModelConfig) -> list[keras.Layer]:
    """The network of official/mnist/mnist.py: Glorot-uniform weights, zero biases, no weight decay."""
    return [
        _conv(32, "conv1"),
        _pool(2, "pool1", "same"),
        _conv(64, "conv2"),
        _pool(2, "pool2", "same"),
        layers.Flatten(name="flatten"),
        layers.Dense(1024, activation="relu", name="dense"),
        Dropout(0.4 if options.dropout is None else options.dropout, name="dropout"),
        layers.Dense(classes, name="logits"),
    ]


def lenet(classes: int, options: ModelConfig) -> list[keras.Layer]:
    """LeNet of TF-Slim (research/slim/nets/lenet.py): wider than the original, with ReLU and max pooling.

    Truncated-normal weights of standard deviation 0.1, zero biases.
    """
    return [
        _conv(32, "conv1", stddev=0.1),
        _pool(2, "pool1", "valid"),
        _conv(64, "conv2", stddev=0.1),
        _pool(2, "pool2", "valid"),
        layers.Flatten(name="flatten"),
        layers.Dense(1024, activation="relu", **_initial(0.1), name="fc3"),
        Dropout(0.5 if options.dropout is None else options.dropout, name="dropout3"),
        layers.Dense(classes, **_initial(0.1), name="logits"),
    ]


def cifarnet(classes: int, options: ModelConfig) -> list[keras.Layer]:
    """CifarNet of TF-Slim (research/slim/nets/cifarnet.py).

    Truncated-normal weights; the standard deviation depends on the kind of layer. The first normalization comes
    after its pooling, the second before it.
    """
    return [
        _conv(64, "conv1", stddev=CONV_STDDEV),
        _pool(2, "pool1", "valid"),
        LocalResponseNormalization(name="norm1"),
        _conv(64, "conv2", stddev=CONV_STDDEV),
        LocalResponseNormalization(name="norm2"),
        _pool(2, "pool2", "valid"),
        layers.Flatten(name="flatten"),
        layers.Dense(384, activation="relu", **_initial(0.04, bias=0.1), name="fc3"),
        Dropout(0.5 if options.dropout is None else options.dropout, name="dropout3"),
        layers.Dense(192, activation="relu", **_initial(0.04, bias=0.1), name="fc4"),
        layers.Dense(classes, **_initial(1 / 192), name="logits"),
    ]


def cifar10_tutorial(classes: int, options: ModelConfig) -> list[keras.Layer]:
    """The network of TensorFlow's CIFAR-10 tutorial (tutorials/image/cifar10/cifar10.py).

    Truncated-normal weights. Pooling windows overlap (3x3, stride 2). The first normalization comes after its
    pooling, the second before it. The original has no dropout; `model.dropout` is inserted before the logits.
    """
    stddev = CONV_STDDEV if options.conv_stddev is None else options.conv_stddev
    dropout = [] if options.dropout is None else [Dropout(options.dropout, name="dropout")]
    return [
        _conv(64, "conv1", stddev=stddev),
        _pool(3, "pool1", "same"),
        LocalResponseNormalization(name="norm1"),
        _conv(64, "conv2", stddev=stddev, bias=0.1),
        LocalResponseNormalization(name="norm2"),
        _pool(3, "pool2", "same"),
        layers.Flatten(name="flatten"),
        layers.Dense(384, activation="relu", **_initial(0.04, bias=0.1), name="local3"),
        layers.Dense(192, activation="relu", **_initial(0.04, bias=0.1), name="local4"),
        *dropout,
        layers.Dense(classes, **_initial(1 / 192), name="logits"),
    ]


def _conv(filters: int, name: str, *, stddev: float | None = None, bias: float = 0.0) -> keras.Layer:
    initial = {} if stddev is None else _initial(stddev, bias=bias)
    return layers.Conv2D(filters, 5, padding="same", activation="relu", **initial, name=name)


def _pool(size: int, name: str, padding: str) -> keras.Layer:
    return layers.MaxPooling2D(size, strides=2, padding=padding, name=name)


def _initial(stddev: float, *, bias: float = 0.0) -> dict[str, keras.Initializer]:
    return {
        "kernel_initializer": keras.initializers.TruncatedNormal(stddev=stddev),
        "bias_initializer": keras.initializers.Constant(bias),
    }


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A network of convolutions with biases, poolings and dense layers as a table, with one text per layer.

    "conv2 192 5" is a convolution with 192 filters of 5x5; "conv1 64 11 /4 valid" has stride 4 and no padding;
    "pool1 3" is max pooling over 3x3 with stride 2; "fc6 4096" is a dense layer followed by dropout.
    """

    layers: tuple[str, ...]
    bias: float = 0.0  # initial value, for convolutions
    dense_initial: Initial = xavier
    dense_bias: float = 0.0

    def network(self, image: Shape, classes: int, options: ModelConfig) -> keras.Model:
        """Build a model with new weights."""
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
        logits = dense(x, classes, LOGITS, initial=self.dense_initial)
        return keras.Model(images, logits, name=options.name)


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
    "mnist_cnn": Architecture(network=chained(mnist_cnn)),
    "lenet": Architecture(network=chained(lenet)),
    "cifarnet": Architecture(
        network=chained(cifarnet), weight_decay=0.004, decayed=("fc3/kernel", "fc4/kernel")
    ),
    "cifar10_tutorial": Architecture(
        network=chained(cifar10_tutorial), weight_decay=0.004, decayed=("local3/kernel", "local4/kernel")
    ),
    "fast_cnn": FAST_CNN,
    "alexnet_v2": Architecture(network=ALEXNET.network, weight_decay=5e-4),
    "overfeat": Architecture(network=OVERFEAT.network, weight_decay=5e-4),
    "vgg_a": Architecture(network=VGG_A.network, weight_decay=5e-4),
}
