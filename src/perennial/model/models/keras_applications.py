# Origin: research/slim/nets of github.com/tensorflow/models (Apache-2.0): names, weight decay and dropout.
"""The networks of Keras Applications, under TF-Slim's names where it has them, with our layer names."""

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial

import keras
import numpy as np
from keras import applications as published
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import AUX_LOGITS, LOGITS, Architecture
from perennial.model.models.layers import Dropout, LayerScale
from perennial.model.models.slim_layers import Auxiliary, BatchNorm, truncated, xavier

HALF = 127.5  # of the range of pixels


@dataclass(frozen=True)
class Application:
    """A network of Keras Applications and our changes to it."""

    make: Callable[..., keras.Model]
    _: KW_ONLY
    weight_decay: float = 0.0  # this and the next two are as in Architecture
    decayed: tuple[str, ...] = ("*/kernel",)
    head: tuple[str, ...] = (LOGITS,)
    classifier: str = "predictions"  # Keras' name for the layer that outputs the logits
    dropout: float | None = 0.0  # rate before the logits; None: Keras' network already has dropout
    dropout_before: tuple[str, ...] = ()  # other layers that dropout precedes
    auxiliary: Auxiliary | None = None
    batch_norm_decay: float | None = None  # of the averages; None: Keras' own
    bgr: bool = False  # Keras' weights expect blue first

    def network(self, image: tuple[int, int, int], classes: int, options: ModelConfig) -> keras.Model:
        """Build a model with new weights, from float32 [N, height, width, channels] to logits [N, classes]."""
        original = self.make(weights=None, input_shape=image, classes=classes, classifier_activation=None)
        names = layer_names(original, self.classifier)

        decay = self.batch_norm_decay if options.batch_norm_decay is None else options.batch_norm_decay

        def layer_like(layer: keras.Layer) -> keras.Layer:
            config = {**layer.get_config(), **_scaling(layer), "name": names[layer.name]}
            if isinstance(layer, layers.BatchNormalization) and decay is not None:
                config["momentum"] = decay
            if type(layer).__name__ == "LayerScale":
                return LayerScale(**config)
            if not isinstance(layer, layers.Dropout):
                return type(layer).from_config(config)
            # With a noise shape, a dropout layer is stochastic depth, which `model.dropout` does not affect.
            kept = layer.noise_shape is not None
            rate = layer.rate if kept or options.dropout is None else options.dropout
            return Dropout(rate, layer.noise_shape, name=config["name"], dtype=layer.dtype_policy)

        def call(layer: keras.Layer, *args: object, **kwargs: object) -> keras.KerasTensor:
            if self.dropout is not None and layer.name in {LOGITS, *self.dropout_before}:
                rate = self.dropout if options.dropout is None else options.dropout
                args = (Dropout(rate, name=f"dropout_{layer.name}")(*args),)
            return layer(*args, **kwargs)

        images = keras.Input(image, name="image")
        clone = keras.models.clone_model(
            original, input_tensors=images, clone_function=layer_like, call_function=call
        )
        outputs = clone.outputs[0]
        if self.auxiliary is not None:
            outputs = {LOGITS: outputs, AUX_LOGITS: self.auxiliary.logits(clone, classes, options)}
        return keras.Model(clone.inputs[0], outputs, name=options.name)


def layer_names(model: keras.Model, classifier: str) -> dict[str, str]:
    """Map the layer names of this process to ours.

    Keras numbers unnamed layers per process; here they are numbered by their order among layers of the same
    kind. The layer that outputs the logits has the same name in every network, so that one pattern fits all.
    """
    names, seen = {}, dict[str, int]()
    for layer in sorted(model.operations, key=lambda layer: _number(layer.name)):
        kind = re.sub(r"_\d+$", "", layer.name)
        if kind.replace("_", "") != type(layer).__name__.lower():
            names[layer.name] = layer.name
            continue
        number = seen.setdefault(kind, 0)
        names[layer.name] = f"{kind}_{number}" if number else kind
        seen[kind] += 1
    return names | {classifier: LOGITS}


def _scaling(layer: keras.Layer) -> dict[str, object]:
    """Changes to Keras' built-in scaling from 0..255, so that it takes our -1..1; empty for other layers."""
    if isinstance(layer, layers.Rescaling):
        return {"scale": layer.scale * HALF, "offset": layer.offset + layer.scale * HALF}
    if isinstance(layer, layers.Normalization) and layer.name.endswith("prestem_normalization"):
        mean, variance = (np.asarray(layer.get_config()[key]) for key in ("mean", "variance"))
        return {"mean": (mean / HALF - 1).tolist(), "variance": (variance / HALF**2).tolist()}
    return {}


def _number(name: str) -> int:
    number = re.search(r"_(\d+)$", name)
    return int(number[1]) if number else 0


# Weight decay and dropout are those of TF-Slim (research/slim/nets), except for EfficientNet V2 (Tan and Le
# 2021) and ConvNeXt, whose decay is that of AdamW.
_vgg = partial(Application, weight_decay=5e-4, dropout=0.5, dropout_before=("fc2",), bgr=True)
_resnet_v1 = partial(Application, weight_decay=1e-4, bgr=True)
_resnet_v2 = partial(Application, weight_decay=1e-4)
_inception = partial(
    Application, weight_decay=4e-5, dropout=0.2, batch_norm_decay=0.9997, head=(LOGITS, f"{AUX_LOGITS}*")
)
_INCEPTION_NORM = BatchNorm(decay=0.9997)

_mobilenet_v1 = partial(
    Application,
    classifier="conv_preds",
    dropout=None,
    weight_decay=4e-5,
    batch_norm_decay=0.9997,
    decayed=("conv1/kernel", "conv_pw_*/kernel", "logits/kernel"),
)
_mobilenet_v2 = partial(
    Application,
    dropout=0.2,
    weight_decay=4e-5,
    batch_norm_decay=0.997,
    decayed=("Conv*/kernel", "*_expand/kernel", "*_project/kernel", "logits/kernel"),
)
_mobilenet_v3 = partial(
    Application,
    classifier="logits",
    dropout=None,
    weight_decay=4e-5,
    decayed=(
        "conv*/kernel", "*_expand/kernel", "*_project/kernel", "*_excite_conv*/kernel", "logits/kernel",
    ),
)  # fmt: skip
_efficientnet_v2 = partial(Application, dropout=None, weight_decay=1e-5)


def _convnext(make: Callable[..., keras.Model], size: str) -> Application:
    return Application(make, classifier=f"convnext_{size}_head_dense")


APPLICATIONS: dict[str, Application] = {
    "vgg_16": _vgg(published.VGG16),
    "vgg_19": _vgg(published.VGG19),
    "inception_v3": _inception(
        published.InceptionV3,
        auxiliary=Auxiliary(
            layer="mixed7", norm=_INCEPTION_NORM, covering=truncated(0.01), last=truncated(0.001)
        ),
    ),
    "inception_resnet_v2": _inception(
        published.InceptionResNetV2,
        decayed=("*/kernel", "*/bias"),
        auxiliary=Auxiliary(layer="block17_20_ac", norm=_INCEPTION_NORM, initial=xavier),
    ),
    "keras_resnet_v1_50": _resnet_v1(published.ResNet50),
    "keras_resnet_v1_101": _resnet_v1(published.ResNet101),
    "keras_resnet_v1_152": _resnet_v1(published.ResNet152),
    "keras_resnet_v2_50": _resnet_v2(published.ResNet50V2),
    "keras_resnet_v2_101": _resnet_v2(published.ResNet101V2),
    "keras_resnet_v2_152": _resnet_v2(published.ResNet152V2),
    "mobilenet_v1": _mobilenet_v1(published.MobileNet),
    "mobilenet_v1_075": _mobilenet_v1(partial(published.MobileNet, alpha=0.75)),
    "mobilenet_v1_050": _mobilenet_v1(partial(published.MobileNet, alpha=0.5)),
    "mobilenet_v1_025": _mobilenet_v1(partial(published.MobileNet, alpha=0.25)),
    "mobilenet_v2": _mobilenet_v2(published.MobileNetV2),
    "mobilenet_v2_140": _mobilenet_v2(partial(published.MobileNetV2, alpha=1.4)),
    "mobilenet_v2_130": _mobilenet_v2(partial(published.MobileNetV2, alpha=1.3)),
    "mobilenet_v2_075": _mobilenet_v2(partial(published.MobileNetV2, alpha=0.75)),
    "mobilenet_v2_050": _mobilenet_v2(partial(published.MobileNetV2, alpha=0.5)),
    "mobilenet_v2_035": _mobilenet_v2(partial(published.MobileNetV2, alpha=0.35)),
    "mobilenet_v3_large": _mobilenet_v3(published.MobileNetV3Large),
    "mobilenet_v3_large_075": _mobilenet_v3(partial(published.MobileNetV3Large, alpha=0.75)),
    "mobilenet_v3_small": _mobilenet_v3(published.MobileNetV3Small),
    "mobilenet_v3_small_075": _mobilenet_v3(partial(published.MobileNetV3Small, alpha=0.75)),
    "efficientnet_v2_b0": _efficientnet_v2(published.EfficientNetV2B0),
    "efficientnet_v2_b1": _efficientnet_v2(published.EfficientNetV2B1),
    "efficientnet_v2_b2": _efficientnet_v2(published.EfficientNetV2B2),
    "efficientnet_v2_b3": _efficientnet_v2(published.EfficientNetV2B3),
    "efficientnet_v2_s": _efficientnet_v2(published.EfficientNetV2S),
    "efficientnet_v2_m": _efficientnet_v2(published.EfficientNetV2M),
    "efficientnet_v2_l": _efficientnet_v2(published.EfficientNetV2L),
    "convnext_tiny": _convnext(published.ConvNeXtTiny, "tiny"),
    "convnext_small": _convnext(published.ConvNeXtSmall, "small"),
    "convnext_base": _convnext(published.ConvNeXtBase, "base"),
    "convnext_large": _convnext(published.ConvNeXtLarge, "large"),
    "convnext_xlarge": _convnext(published.ConvNeXtXLarge, "xlarge"),
}

ARCHITECTURES: dict[str, Architecture] = {
    name: Architecture(
        network=each.network, weight_decay=each.weight_decay, decayed=each.decayed, head=each.head
    )
    for name, each in APPLICATIONS.items()
}
