"""The networks of Keras Applications, with names, dropout and heads of ours."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
from keras import layers

from perennial.config.sections import ModelConfig
from perennial.models.dropout import Dropout
from perennial.models.layer_scale import LayerScale

LOGITS, AUX_LOGITS = "logits", "aux_logits"
HALF = 127.5  # of the range of pixels


@dataclass(frozen=True, kw_only=True)
class Application:
    """A network of Keras Applications, and how ours differs from it."""

    make: Callable[..., keras.Model]
    classifier: str = "predictions"  # Keras' name of the layer that gives the logits
    dropout: float | None = 0.0  # share left out before the logits in training; None: Keras has it itself
    dropout_before: tuple[str, ...] = ()  # other layers that it comes before
    auxiliary: str | None = None  # the layer that an auxiliary classifier looks at
    bgr: bool = False  # Keras' weights expect blue first

    def network(self, image: tuple[int, int, int], classes: int, options: ModelConfig) -> keras.Model:
        """A model from float32 [N, height, width, channels] to logits [N, classes], with new weights."""
        original = self.make(weights=None, input_shape=image, classes=classes, classifier_activation=None)
        names = own_names(original, self.classifier)

        def layer_like(layer: keras.Layer) -> keras.Layer:
            config = {**layer.get_config(), **_scaling(layer), "name": names[layer.name]}
            if type(layer).__name__ == "LayerScale":
                return LayerScale(**config)
            if not isinstance(layer, layers.Dropout):
                return type(layer).from_config(config)
            # With a noise shape it leaves out whole branches of the network, which is another matter.
            kept = layer.noise_shape is not None
            rate = layer.rate if kept or options.dropout is None else options.dropout
            return Dropout(rate, layer.noise_shape, name=config["name"], dtype=layer.dtype_policy)

        def call(layer: keras.Layer, *args: object, **kwargs: object) -> keras.KerasTensor:
            if self.dropout is not None and layer.name in {LOGITS, *self.dropout_before}:
                rate = self.dropout if options.dropout is None else options.dropout
                args = (Dropout(rate, name=f"dropout_{layer.name}")(*args),)
            return layer(*args, **kwargs)

        clone = keras.models.clone_model(
            original,
            input_tensors=keras.Input(image, name="image"),
            clone_function=layer_like,
            call_function=call,
        )
        outputs = clone.outputs[0]
        if self.auxiliary is not None:
            features = clone.get_layer(self.auxiliary).output
            outputs = {LOGITS: outputs, AUX_LOGITS: _auxiliary_classifier(features, classes)}
        return keras.Model(clone.inputs[0], outputs, name=options.name)


def own_names(model: keras.Model, classifier: str) -> dict[str, str]:
    """Our name of each layer, by the one it has in this process.

    Keras numbers layers without a name by process: these get their place among their kind. The layer that
    gives the logits is called so in every network, that patterns of layers fit all.
    """
    names, seen = {}, dict[str, int]()
    for layer in sorted(model.operations, key=lambda layer: _number(layer.name)):
        kind = re.sub(r"_\d+$", "", layer.name)
        if kind.replace("_", "") != type(layer).__name__.lower():
            names[layer.name] = layer.name
            continue
        place = seen.setdefault(kind, 0)
        names[layer.name] = f"{kind}_{place}" if place else kind
        seen[kind] += 1
    return names | {classifier: LOGITS}


def _scaling(layer: keras.Layer) -> dict[str, object]:
    """What to change in Keras' own scaling of 0..255 so that it takes our -1..1; nothing in other layers."""
    if isinstance(layer, layers.Rescaling):
        return {"scale": layer.scale * HALF, "offset": layer.offset + layer.scale * HALF}
    if isinstance(layer, layers.Normalization) and layer.name.endswith("prestem_normalization"):
        mean, variance = (np.asarray(layer.get_config()[key]) for key in ("mean", "variance"))
        return {"mean": (mean / HALF - 1).tolist(), "variance": (variance / HALF**2).tolist()}
    return {}


def _number(name: str) -> int:
    number = re.search(r"_(\d+)$", name)
    return int(number[1]) if number else 0


def _auxiliary_classifier(features: keras.KerasTensor, classes: int) -> keras.KerasTensor:
    """AuxLogits of TF-Slim's Inception v3 (research/slim/nets/inception_v3.py), on its 17x17 grid."""
    truncated = keras.initializers.TruncatedNormal
    window = tuple(min(side, 5) for side in features.shape[1:3])
    x = layers.AveragePooling2D(window, strides=3, name="aux_logits_pool")(features)
    x = _normalized_conv(x, 128, (1, 1), "aux_logits_conv1")
    # As large as what it sees, 5x5 at the original image size.
    x = _normalized_conv(x, 768, x.shape[1:3], "aux_logits_conv2", kernel_initializer=truncated(stddev=0.01))
    x = layers.Flatten(name="aux_logits_flatten")(x)
    return layers.Dense(classes, kernel_initializer=truncated(stddev=0.001), name=AUX_LOGITS)(x)


def _normalized_conv(
    x: keras.KerasTensor, filters: int, size: tuple[int, int], name: str, **kwargs: object
) -> keras.KerasTensor:
    x = layers.Conv2D(filters, size, use_bias=False, name=name, **kwargs)(x)
    x = layers.BatchNormalization(scale=False, name=f"{name}_bn")(x)
    return layers.Activation("relu", name=f"{name}_relu")(x)
