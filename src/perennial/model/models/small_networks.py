# Origin: official/mnist/mnist.py, research/slim/nets/{lenet,cifarnet}.py, tutorials/image/cifar10/cifar10.py
# of github.com/tensorflow/models (Apache-2.0): the networks and their initial weights.
"""Four small networks from TensorFlow's own programs, from float32 [N, height, width, channels] to logits.

Every layer is named: Keras numbers unnamed ones per process, so the files of equal models would differ.
"""

import keras
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import Architecture
from perennial.model.models.layers import Dropout, LocalResponseNormalization, chained

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


MNIST_CNN = Architecture(network=chained(mnist_cnn))
LENET = Architecture(network=chained(lenet))
CIFARNET = Architecture(network=chained(cifarnet), weight_decay=0.004, decayed=("fc3/kernel", "fc4/kernel"))
CIFAR10_TUTORIAL = Architecture(
    network=chained(cifar10_tutorial), weight_decay=0.004, decayed=("local3/kernel", "local4/kernel")
)
