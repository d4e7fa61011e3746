# Origin: research/slim/nets of github.com/tensorflow/models (Apache-2.0):
# names of layers, initial weights, heads.
"""Building blocks of slim's networks: convolutions configured like an argument scope, and heads.

Layers have the names of slim's scopes below the network's own, with a dot for each slash, and slim's initial
weights.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import keras
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import AUX_LOGITS, LOGITS
from perennial.model.models.layers import Dropout

Initial = Callable[[], keras.Initializer]  # a new one for each layer: a shared one would draw equal weights
# slim's variance scaling: the standard deviation before truncation at two deviations is sqrt(1.3 * 2 / n).
SCALE = 1.3 * 2 * 0.87962566103423978**2


def fan_in() -> keras.Initializer:
    """Slim's variance scaling by the number of inputs of a unit."""
    return keras.initializers.VarianceScaling(SCALE, "fan_in", "truncated_normal")


def fan_out() -> keras.Initializer:
    """Slim's variance scaling by the number of outputs of a unit."""
    return keras.initializers.VarianceScaling(SCALE, "fan_out", "truncated_normal")


def xavier() -> keras.Initializer:
    """Glorot-uniform weights, slim's default."""
    return keras.initializers.GlorotUniform()


def truncated(stddev: float) -> Initial:
    """A normal distribution truncated at two standard deviations."""
    return lambda: keras.initializers.TruncatedNormal(stddev=stddev)


@dataclass(frozen=True, kw_only=True)
class BatchNorm:
    """The batch normalization of a slim network."""

    decay: float  # of the moving averages
    epsilon: float = 1e-3
    scale: bool = False  # whether it learns a factor in addition to the offset

    def layer(self, name: str, options: ModelConfig) -> keras.Layer:
        """Create the normalization layer."""
        decay = self.decay if options.batch_norm_decay is None else options.batch_norm_decay
        return layers.BatchNormalization(momentum=decay, epsilon=self.epsilon, scale=self.scale, name=name)


@dataclass(frozen=True)
class Convolution:
    """The settings that the convolutions of a network share, like slim's argument scope."""

    options: ModelConfig
    norm: BatchNorm | None  # None: biases instead
    _: KW_ONLY
    initial: Initial = fan_in
    bias: float = 0.0  # initial

    def __call__(
        self,
        x: keras.KerasTensor,
        filters: int,
        size: int | tuple[int, int],
        name: str,
        *,
        stride: int = 1,
        padding: str = "same",
        relu: bool = True,
        initial: Initial | None = None,
    ) -> keras.KerasTensor:
        """Apply a convolution, normalization or bias, and ReLU: layers NAME, NAME.BatchNorm and NAME.Relu."""
        bias = {"use_bias": self.norm is None, "bias_initializer": keras.initializers.Constant(self.bias)}
        weights = (initial or self.initial)()
        x = layers.Conv2D(
            filters, size, strides=stride, padding=padding, kernel_initializer=weights, name=name, **bias
        )(x)
        if self.norm is not None:
            x = self.norm.layer(f"{name}.BatchNorm", self.options)(x)
        return layers.ReLU(name=f"{name}.Relu")(x) if relu else x


def dropped(x: keras.KerasTensor, rate: float, options: ModelConfig, name: str) -> keras.KerasTensor:
    """Apply dropout at the network's own rate, or at the rate in the options."""
    return Dropout(rate if options.dropout is None else options.dropout, name=name)(x)


def dense(
    x: keras.KerasTensor, units: int, name: str, *, initial: Initial = fan_in, bias: float = 0.0
) -> keras.KerasTensor:
    """Connect every value of x to every unit, like slim's convolution with a kernel that covers all of x."""
    if len(x.shape) > 2:
        x = layers.Flatten(name=f"{name}.Flatten")(x)
    return layers.Dense(
        units, kernel_initializer=initial(), bias_initializer=keras.initializers.Constant(bias), name=name
    )(x)


def pooled_logits(
    x: keras.KerasTensor, classes: int, options: ModelConfig, *, dropout: float, initial: Initial = fan_in
) -> keras.KerasTensor:
    """Global average pooling, dropout, and logits [N, classes]."""
    x = layers.GlobalAveragePooling2D(name="global_pool")(x)
    return dense(dropped(x, dropout, options, "dropout_logits"), classes, LOGITS, initial=initial)


@dataclass(frozen=True, kw_only=True)
class Auxiliary:
    """Slim's auxiliary classifier on the output of a layer, 17x17 at the published size."""

    layer: str
    norm: BatchNorm
    initial: Initial = fan_in
    covering: Initial | None = None  # of the kernel that covers the pooled grid; None: as for the others
    last: Initial = xavier  # of the logits
    relu: bool = False  # whether it starts with ReLU

    def logits(self, network: keras.Model, classes: int, options: ModelConfig) -> keras.KerasTensor:
        """The auxiliary logits [N, classes] of a network that has the layer."""
        x = network.get_layer(self.layer).output
        convolution = Convolution(options, self.norm, initial=self.initial)
        if self.relu:
            x = layers.ReLU(name="aux_logits_relu")(x)
        window = tuple(min(side, 5) for side in x.shape[1:3])
        x = layers.AveragePooling2D(window, strides=3, name="aux_logits_pool")(x)
        x = convolution(x, 128, 1, "aux_logits_conv1")
        x = convolution(x, 768, x.shape[1:3], "aux_logits_conv2", padding="valid", initial=self.covering)
        return dense(x, classes, AUX_LOGITS, initial=self.last)
