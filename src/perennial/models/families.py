"""The networks that Keras Applications has, under TF-Slim's names where it has one."""

from collections.abc import Callable
from functools import partial

import keras
from keras import applications as published

from perennial.models.applications import AUX_LOGITS, LOGITS, Application
from perennial.models.architecture import Architecture

# The smallest images are Keras' rule. Weight decay and dropout are TF-Slim's (research/slim/nets), but for
# EfficientNet V2 (Tan and Le 2021) and ConvNeXt, whose decay is AdamW's own.
SMALLEST, SMALLEST_INCEPTION = 32, 75


def _vgg(make: Callable[..., keras.Model], parameters: int) -> Architecture:
    application = Application(make=make, dropout=0.5, dropout_before=("fc2",), bgr=True)
    return _architecture(application, parameters, preprocessing="vgg", weight_decay=5e-4)


def _resnet_v1(make: Callable[..., keras.Model], parameters: int) -> Architecture:
    return _architecture(Application(make=make, bgr=True), parameters, preprocessing="vgg", weight_decay=1e-4)


def _resnet_v2(make: Callable[..., keras.Model], parameters: int) -> Architecture:
    return _architecture(Application(make=make), parameters, preprocessing="inception", weight_decay=1e-4)


def _mobilenet_v1(alpha: float, parameters: int) -> Architecture:
    make = partial(published.MobileNet, alpha=alpha)
    return _architecture(
        Application(make=make, classifier="conv_preds", dropout=None),
        parameters,
        preprocessing="inception",
        weight_decay=4e-5,
        decayed=("conv1/kernel", "conv_pw_*/kernel", "logits/kernel"),
    )


def _mobilenet_v2(alpha: float, parameters: int) -> Architecture:
    make = partial(published.MobileNetV2, alpha=alpha)
    return _architecture(
        Application(make=make, dropout=0.2),
        parameters,
        preprocessing="inception",
        weight_decay=4e-5,
        decayed=("Conv*/kernel", "*_expand/kernel", "*_project/kernel", "logits/kernel"),
    )


def _mobilenet_v3(make: Callable[..., keras.Model], alpha: float, parameters: int) -> Architecture:
    return _architecture(
        Application(make=partial(make, alpha=alpha), classifier="logits", dropout=None),
        parameters,
        preprocessing="inception",
        weight_decay=4e-5,
        decayed=(
            "conv*/kernel",
            "*_expand/kernel",
            "*_project/kernel",
            "*_excite_conv*/kernel",
            "logits/kernel",
        ),
    )


def _nasnet(
    make: Callable[..., keras.Model], parameters: int, *, image_size: int, decay: float
) -> Architecture:
    return _architecture(
        Application(make=make, dropout=0.5),
        parameters,
        image_size=image_size,
        preprocessing="inception",
        weight_decay=decay,
        decayed=("*kernel",),  # of separable convolutions both kernels
    )


def _efficientnet_v2(make: Callable[..., keras.Model], parameters: int, image_size: int) -> Architecture:
    return _architecture(
        Application(make=make, dropout=None),
        parameters,
        image_size=image_size,
        preprocessing="inception",
        weight_decay=1e-5,
    )


def _convnext(make: Callable[..., keras.Model], size: str, parameters: int) -> Architecture:
    application = Application(make=make, classifier=f"convnext_{size}_head_dense")
    return _architecture(application, parameters, preprocessing="inception", weight_decay=0.0)


def _architecture(
    application: Application,
    parameters: int,
    *,
    preprocessing: str,
    weight_decay: float,
    image_size: int = 224,
    least_size: int = SMALLEST,
    decayed: tuple[str, ...] = ("*/kernel",),
    head: tuple[str, ...] = (LOGITS,),
) -> Architecture:
    return Architecture(
        network=application.network,
        image_size=image_size,
        parameters=parameters,
        preprocessing=preprocessing,
        weight_decay=weight_decay,
        decayed=decayed,
        head=head,
        least_size=least_size,
        application=application,
    )


FAMILIES: dict[str, Architecture] = {
    "vgg_16": _vgg(published.VGG16, 134_301_514),
    "vgg_19": _vgg(published.VGG19, 139_611_210),
    "inception_v3": _architecture(
        Application(make=published.InceptionV3, dropout=0.2, auxiliary="mixed7"),
        24_389_556,
        image_size=299,
        preprocessing="inception",
        weight_decay=4e-5,
        head=(LOGITS, f"{AUX_LOGITS}*"),
        least_size=SMALLEST_INCEPTION,
    ),
    "inception_resnet_v2": _architecture(
        Application(make=published.InceptionResNetV2, dropout=0.2),
        54_352_106,
        image_size=299,
        preprocessing="inception",
        weight_decay=4e-5,
        least_size=SMALLEST_INCEPTION,
    ),
    "resnet_v1_50": _resnet_v1(published.ResNet50, 23_608_202),
    "resnet_v1_101": _resnet_v1(published.ResNet101, 42_678_666),
    "resnet_v1_152": _resnet_v1(published.ResNet152, 58_391_434),
    "resnet_v2_50": _resnet_v2(published.ResNet50V2, 23_585_290),
    "resnet_v2_101": _resnet_v2(published.ResNet101V2, 42_647_050),
    "resnet_v2_152": _resnet_v2(published.ResNet152V2, 58_352_138),
    "mobilenet_v1": _mobilenet_v1(1.0, 3_239_114),
    "mobilenet_v1_075": _mobilenet_v1(0.75, 1_840_666),
    "mobilenet_v1_050": _mobilenet_v1(0.5, 834_666),
    "mobilenet_v1_025": _mobilenet_v1(0.25, 221_114),
    "mobilenet_v2": _mobilenet_v2(1.0, 2_270_794),
    "mobilenet_v2_140": _mobilenet_v2(1.4, 4_381_642),
    "mobilenet_v2_130": _mobilenet_v2(1.3, 3_782_698),
    "mobilenet_v2_075": _mobilenet_v2(0.75, 1_394_874),
    "mobilenet_v2_050": _mobilenet_v2(0.5, 719_034),
    "mobilenet_v2_035": _mobilenet_v2(0.35, 423_018),
    "mobilenet_v3_large": _mobilenet_v3(published.MobileNetV3Large, 1.0, 4_239_242),
    "mobilenet_v3_large_075": _mobilenet_v3(published.MobileNetV3Large, 0.75, 2_744_426),
    "mobilenet_v3_small": _mobilenet_v3(published.MobileNetV3Small, 1.0, 1_540_218),
    "mobilenet_v3_small_075": _mobilenet_v3(published.MobileNetV3Small, 0.75, 1_036_802),
    "nasnet_mobile": _nasnet(published.NASNetMobile, 4_280_286, image_size=224, decay=4e-5),
    "nasnet_large": _nasnet(published.NASNetLarge, 84_957_148, image_size=331, decay=5e-5),
    "efficientnet_v2_b0": _efficientnet_v2(published.EfficientNetV2B0, 5_932_122, 224),
    "efficientnet_v2_b1": _efficientnet_v2(published.EfficientNetV2B1, 6_943_934, 240),
    "efficientnet_v2_b2": _efficientnet_v2(published.EfficientNetV2B2, 8_783_464, 260),
    "efficientnet_v2_b3": _efficientnet_v2(published.EfficientNetV2B3, 12_945_992, 300),
    "efficientnet_v2_s": _efficientnet_v2(published.EfficientNetV2S, 20_344_170, 384),
    "efficientnet_v2_m": _efficientnet_v2(published.EfficientNetV2M, 53_163_198, 480),
    "efficientnet_v2_l": _efficientnet_v2(published.EfficientNetV2L, 117_759_658, 480),
    "convnext_tiny": _convnext(published.ConvNeXtTiny, "tiny", 27_827_818),
    "convnext_small": _convnext(published.ConvNeXtSmall, "small", 49_462_378),
    "convnext_base": _convnext(published.ConvNeXtBase, "base", 87_576_714),
    "convnext_large": _convnext(published.ConvNeXtLarge, "large", 196_245_706),
    "convnext_xlarge": _convnext(published.ConvNeXtXLarge, "xlarge", 348_168_458),
}
