"""The network of TensorFlow's CIFAR-10 tutorial (tutorials/image/cifar10/cifar10.py)."""

import keras
from keras import layers

from perennial.config.data import ModelConfig
from perennial.models.architecture import Architecture
from perennial.models.layers import Dropout, LocalResponseNormalization, chain

CONV_STDDEV = 0.05  # of the later versions; the first had 1e-4


def build(image: tuple[int, int, int], classes: int, options: ModelConfig) -> keras.Model:
    """A model from float32 [N, height, width, channels] to logits [N, classes].

    Truncated-normal weights. Pooling windows overlap (3x3 every 2 pixels). The first normalization comes
    after its pooling, the second before. The original has no dropout; `model.dropout` puts it before
    the logits.
    """
    stddev = CONV_STDDEV if options.conv_stddev is None else options.conv_stddev
    dropout = [] if options.dropout is None else [Dropout(options.dropout, name="dropout")]
    return chain(
        options.name,
        image,
        [
            _conv("conv1", stddev, bias=0.0),
            layers.MaxPooling2D(3, strides=2, padding="same", name="pool1"),
            LocalResponseNormalization(name="norm1"),
            _conv("conv2", stddev, bias=0.1),
            LocalResponseNormalization(name="norm2"),
            layers.MaxPooling2D(3, strides=2, padding="same", name="pool2"),
            layers.Flatten(name="flatten"),
            layers.Dense(384, activation="relu", **_initial(0.04, bias=0.1), name="local3"),
            layers.Dense(192, activation="relu", **_initial(0.04, bias=0.1), name="local4"),
            *dropout,
            layers.Dense(classes, **_initial(1 / 192, bias=0.0), name="logits"),
        ],
    )


def _conv(name: str, stddev: float, *, bias: float) -> keras.Layer:
    return layers.Conv2D(64, 5, padding="same", activation="relu", **_initial(stddev, bias=bias), name=name)


def _initial(stddev: float, *, bias: float) -> dict[str, keras.Initializer]:
    return {
        "kernel_initializer": keras.initializers.TruncatedNormal(stddev=stddev),
        "bias_initializer": keras.initializers.Constant(bias),
    }


CIFAR10_TUTORIAL = Architecture(
    network=build,
    image_size=24,
    parameters=1_068_298,
    preprocessing="cifar10_tutorial",
    weight_decay=0.004,
    decayed=("local3/kernel", "local4/kernel"),
)
