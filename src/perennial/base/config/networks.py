"""Facts about the networks, available without importing TensorFlow, which takes seconds; tests verify them.

Accuracies: https://keras.io/api/applications/, and Keras' documentation of mobilenet_v3; for slim's networks
and the narrower and wider MobileNets V1 and V2, README.md and nets/mobilenet*.md of research/slim in
github.com/tensorflow/models.
"""

from typing import Any, Literal, NamedTuple

from perennial.base.config.fields import is_component


class Network(NamedTuple):
    """The size of a network, and the settings it was published with."""

    parameters: int  # at its image size and channels, with 10 classes
    preprocessing: str  # as in its Architecture, by which it is trained
    top_1: float | None = None  # accuracy of its weights on ImageNet's validation images, in %
    image_size: int = 224  # pixels a side
    channels: int = 3
    least_size: int = 32  # minimum pixels a side
    keras: str | None = None  # its name in Keras Applications, accepted as a spelling of ours
    program: str | None = None  # of TensorFlow 1 that it comes from, whose checkpoints are read


SLIM, OFFICIAL, TUTORIAL = "TF-Slim", "the official MNIST program", "the CIFAR-10 tutorial"
COMPONENT = Network(0, "", image_size=0, least_size=1)  # of a network of the project itself, 0: not known
NETWORKS: dict[str, Network] = {
    "mnist_cnn": Network(3_274_634, "rescale", image_size=28, channels=1, least_size=1, program=OFFICIAL),
    "lenet": Network(3_274_634, "lenet", image_size=28, channels=1, least_size=4, program=SLIM),
    "cifarnet": Network(1_756_426, "cifarnet", image_size=32, least_size=4, program=SLIM),
    "cifar10_tutorial": Network(1_068_298, "cifar10_tutorial", image_size=24, least_size=1, program=TUTORIAL),
    "fast_cnn": Network(570_296, "shifted", image_size=32, least_size=9),
    "alexnet_v2": Network(46_247_882, "vgg", least_size=67, program=SLIM),
    "overfeat": Network(141_648_394, "vgg", image_size=231, least_size=67, program=SLIM),
    "vgg_a": Network(128_807_306, "vgg", program=SLIM),
    "inception_v1": Network(5_617_434, "inception", 69.8, program=SLIM),
    "inception_v2": Network(10_183_362, "inception", 73.9, program=SLIM),
    "inception_v4": Network(43_788_820, "inception", 80.2, image_size=299, least_size=75, program=SLIM),
    "resnet_v1_50": Network(23_581_642, "vgg", 75.2, program=SLIM),
    "resnet_v1_101": Network(42_625_994, "vgg", 76.4, program=SLIM),
    "resnet_v1_152": Network(58_315_722, "vgg", 76.8, program=SLIM),
    "resnet_v1_200": Network(62_821_322, "vgg", program=SLIM),
    "resnet_v2_50": Network(23_585_290, "inception", 75.6, program=SLIM),
    "resnet_v2_101": Network(42_647_050, "inception", 77.0, program=SLIM),
    "resnet_v2_152": Network(58_352_138, "inception", 77.8, program=SLIM),
    "resnet_v2_200": Network(62_865_930, "inception", program=SLIM),
    "nasnet_cifar": Network(5_017_076, "cifarnet", image_size=32, least_size=8, program=SLIM),
    "nasnet_mobile": Network(5_932_008, "inception", 74.4, keras="NASNetMobile", program=SLIM),
    "nasnet_large": Network(88_765_414, "inception", 82.5, image_size=331, keras="NASNetLarge", program=SLIM),
    "pnasnet_mobile": Network(5_681_905, "inception", 74.2, program=SLIM),
    "pnasnet_large": Network(85_783_564, "inception", 82.9, image_size=331, program=SLIM),
    "vgg_16": Network(134_301_514, "vgg", 71.3, keras="VGG16", program=SLIM),
    "vgg_19": Network(139_611_210, "vgg", 71.3, keras="VGG19", program=SLIM),
    "inception_v3": Network(
        24_389_556, "inception", 77.9, image_size=299, least_size=75, keras="InceptionV3", program=SLIM
    ),
    "inception_resnet_v2": Network(
        56_959_348, "inception", 80.3, image_size=299, least_size=75, keras="InceptionResNetV2", program=SLIM
    ),
    "keras_resnet_v1_50": Network(23_608_202, "vgg", 74.9, keras="ResNet50"),
    "keras_resnet_v1_101": Network(42_678_666, "vgg", 76.4, keras="ResNet101"),
    "keras_resnet_v1_152": Network(58_391_434, "vgg", 76.6, keras="ResNet152"),
    "keras_resnet_v2_50": Network(23_585_290, "inception", 76.0, keras="ResNet50V2"),
    "keras_resnet_v2_101": Network(42_647_050, "inception", 77.2, keras="ResNet101V2"),
    "keras_resnet_v2_152": Network(58_352_138, "inception", 78.0, keras="ResNet152V2"),
    "mobilenet_v1": Network(3_239_114, "inception", 70.4, keras="MobileNet", program=SLIM),
    "mobilenet_v1_075": Network(1_840_666, "inception", 68.4, program=SLIM),
    "mobilenet_v1_050": Network(834_666, "inception", 63.3, program=SLIM),
    "mobilenet_v1_025": Network(221_114, "inception", 49.8, program=SLIM),
    "mobilenet_v2": Network(2_270_794, "inception", 71.3, keras="MobileNetV2", program=SLIM),
    "mobilenet_v2_140": Network(4_381_642, "inception", 75.0, program=SLIM),
    "mobilenet_v2_130": Network(3_782_698, "inception", 74.4, program=SLIM),
    "mobilenet_v2_075": Network(1_394_874, "inception", 69.8, program=SLIM),
    "mobilenet_v2_050": Network(719_034, "inception", 65.4, program=SLIM),
    "mobilenet_v2_035": Network(423_018, "inception", 60.3, program=SLIM),
    "mobilenet_v3_large": Network(4_239_242, "inception", 75.6, keras="MobileNetV3Large", program=SLIM),
    "mobilenet_v3_large_075": Network(2_744_426, "inception", 73.3, program=SLIM),
    "mobilenet_v3_small": Network(1_540_218, "inception", 68.1, keras="MobileNetV3Small", program=SLIM),
    "mobilenet_v3_small_075": Network(1_036_802, "inception", 65.4, program=SLIM),
    "efficientnet_v2_b0": Network(5_932_122, "inception", 78.7, keras="EfficientNetV2B0"),
    "efficientnet_v2_b1": Network(6_943_934, "inception", 79.8, image_size=240, keras="EfficientNetV2B1"),
    "efficientnet_v2_b2": Network(8_783_464, "inception", 80.5, image_size=260, keras="EfficientNetV2B2"),
    "efficientnet_v2_b3": Network(12_945_992, "inception", 82.0, image_size=300, keras="EfficientNetV2B3"),
    "efficientnet_v2_s": Network(20_344_170, "inception", 83.9, image_size=384, keras="EfficientNetV2S"),
    "efficientnet_v2_m": Network(53_163_198, "inception", 85.3, image_size=480, keras="EfficientNetV2M"),
    "efficientnet_v2_l": Network(117_759_658, "inception", 85.7, image_size=480, keras="EfficientNetV2L"),
    "convnext_tiny": Network(27_827_818, "inception", 81.3, keras="ConvNeXtTiny"),
    "convnext_small": Network(49_462_378, "inception", 82.3, keras="ConvNeXtSmall"),
    "convnext_base": Network(87_576_714, "inception", 85.3, keras="ConvNeXtBase"),
    "convnext_large": Network(196_245_706, "inception", 86.3, keras="ConvNeXtLarge"),
    "convnext_xlarge": Network(348_168_458, "inception", 86.7, keras="ConvNeXtXLarge"),
    "vit_base_16": Network(85_806_346, "inception", least_size=16),
    "vit_base_32": Network(87_535_882, "inception", image_size=384),
    "vit_large_16": Network(303_311_882, "inception", least_size=16),
    "deit_tiny_16": Network(5_526_730, "inception", least_size=16),
    "deit_small_16": Network(21_670_282, "inception", least_size=16),
    "deit_base_16": Network(85_807_882, "inception", least_size=16),
}
NAMES: Any = Literal[tuple(NETWORKS)]  # for a field of params.yaml
SPELLINGS = {network.keras: name for name, network in NETWORKS.items() if network.keras is not None}


def facts(name: str) -> Network:
    """What is known of a network without building it."""
    return COMPONENT if is_component(name) else NETWORKS[name]


def network_name(given: Any) -> Any:
    """Our name of a network of Keras Applications, such as mobilenet_v2 for MobileNetV2, else the value."""
    return SPELLINGS.get(given, given) if isinstance(given, str) else given
