"""What slim's networks are made of: convolutions as an argument scope makes them, and heads.

Layers have the names of slim's scopes below the network's own, with a dot for each slash. Initial weights are
slim's too. A kernel that covers what is left of the image (fc6, auxiliary classifiers) does so at every size.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import keras
from keras import layers

from perennial.config.data import ModelConfig
from perennial.models.architecture import AUX_LOGITS, LOGITS
from perennial.models.layers import Dropout

Initial = Callable[[], keras.Initializer]  # a new one for each layer: equal ones would draw equal weights
# slim's variance scaling: the deviation before the cut at two deviations is sqrt(1.3 * 2 / n).
SCALE = 1.3 * 2 * 0.87962566103423978**2


def fan_in() -> keras.Initializer:
    """Slim's variance scaling by the inputs of a unit."""
    return keras.initializers.VarianceScaling(SCALE, "fan_in", "truncated_normal")


def fan_out() -> keras.Initializer:
    """Slim's variance scaling by the outputs of a unit."""
    return keras.initializers.VarianceScaling(SCALE, "fan_out", "truncated_normal")


def xavier() -> keras.Initializer:
    """Slim's default."""
    return keras.initializers.GlorotUniform()


def truncated(stddev: float) -> Initial:
    """A normal distribution cut at two deviations."""
    return lambda: keras.initializers.TruncatedNormal(stddev=stddev)


@dataclass(frozen=True, kw_only=True)
class BatchNorm:
    """How slim normalizes in a network."""

    decay: float  # of the moving averages
    epsilon: float = 1e-3
    scale: bool = False  # learns a factor too, not only an offset

    def layer(self, name: str, options: ModelConfig) -> keras.Layer:
        """A layer that normalizes."""
        decay = self.decay if options.batch_norm_decay is None else options.batch_norm_decay
        return layers.BatchNormalization(momentum=decay, epsilon=self.epsilon, scale=self.scale, name=name)


@dataclass(frozen=True)
class Convolution:
    """An argument scope: what the convolutions of a network have in common."""

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
        """A convolution, its normalization or bias, and ReLU: layers NAME, NAME.BatchNorm and NAME.Relu."""
        x = layers.Conv2D(
            filters,
            size,
            strides=stride,
            padding=padding,
            use_bias=self.norm is None,
            kernel_initializer=(initial or self.initial)(),
            bias_initializer=keras.initializers.Constant(self.bias),
            name=name,
        )(x)
        if self.norm is not None:
            x = self.norm.layer(f"{name}.BatchNorm", self.options)(x)
        return layers.ReLU(name=f"{name}.Relu")(x) if relu else x


def dropped(x: keras.KerasTensor, rate: float, options: ModelConfig, name: str) -> keras.KerasTensor:
    """Dropout at the network's own rate, or the one that the options ask for."""
    return Dropout(rate if options.dropout is None else options.dropout, name=name)(x)


def dense(
    x: keras.KerasTensor, units: int, name: str, *, initial: Initial = fan_in, bias: float = 0.0
) -> keras.KerasTensor:
    """Every value of x to every unit: slim's convolution with a kernel that covers all of x, or a layer FC."""
    if len(x.shape) > 2:
        x = layers.Flatten(name=f"{name}.Flatten")(x)
    return layers.Dense(
        units,
        kernel_initializer=initial(),
        bias_initializer=keras.initializers.Constant(bias),
        name=name,
    )(x)


def pooled_logits(
    x: keras.KerasTensor, classes: int, options: ModelConfig, *, dropout: float, initial: Initial = fan_in
) -> keras.KerasTensor:
    """The mean of all positions, dropout, and logits [N, classes]."""
    x = layers.GlobalAveragePooling2D(name="global_pool")(x)
    return dense(dropped(x, dropout, options, "dropout_logits"), classes, LOGITS, initial=initial)


@dataclass(frozen=True, kw_only=True)
class Auxiliary:
    """Slim's auxiliary classifier on the grid of a layer, 17x17 at the published size."""

    layer: str
    norm: BatchNorm
    initial: Initial = fan_in
    covering: Initial | None = None  # of the kernel that covers what the pooling left; None: as the others
    last: Initial = xavier  # of the logits
    relu: bool = False  # before everything else

    def logits(self, network: keras.Model, classes: int, options: ModelConfig) -> keras.KerasTensor:
        """Its logits [N, classes], in a network that has the layer."""
        x, convolution = (
            network.get_layer(self.layer).output,
            Convolution(options, self.norm, initial=self.initial),
        )
        if self.relu:
            x = layers.ReLU(name="aux_logits_relu")(x)
        window = tuple(min(side, 5) for side in x.shape[1:3])
        x = layers.AveragePooling2D(window, strides=3, name="aux_logits_pool")(x)
        x = convolution(x, 128, 1, "aux_logits_conv1")
        x = convolution(x, 768, x.shape[1:3], "aux_logits_conv2", padding="valid", initial=self.covering)
        return dense(x, classes, AUX_LOGITS, initial=self.last)


def model(
    options: ModelConfig,
    images: keras.KerasTensor,
    logits: keras.KerasTensor,
    aux: keras.KerasTensor | None = None,
) -> keras.Model:
    """A model of these outputs."""
    return keras.Model(images, logits if aux is None else {LOGITS: logits, AUX_LOGITS: aux}, name=options.name)
