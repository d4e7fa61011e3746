"""Facts about the networks and their published weights, without importing TensorFlow; tests verify them.

Accuracies: keras.io/api/applications, and README.md and nets/mobilenet*.md of research/slim in
github.com/tensorflow/models. Weights: keras/src/applications/*.py of Keras 3, without digests for
MobileNet V1 and V2; keras_hub/src/models/*/*_presets.py, without digests, at huggingface.co/keras.
"""

import csv
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perennial.base.config.fields import is_component


class Network(NamedTuple):
    """The size of a network, and the settings it was published with."""

    parameters: int  # at its image size and channels, with 10 classes
    preprocessing: str  # with which it was published
    top_1: float | None = None  # accuracy of its weights on ImageNet's validation images, in %
    image_size: int = 224  # pixels a side
    channels: int = 3
    least_size: int = 32  # minimum pixels a side
    keras: str | None = None  # its name in Keras Applications, accepted as a spelling of ours
    program: str | None = None  # of TensorFlow 1 that it comes from, whose checkpoints are read
    mirrors: bool = False  # whether its inference averages over an image and its mirror image


SLIM, OFFICIAL, TUTORIAL = "TF-Slim", "the official MNIST program", "the CIFAR-10 tutorial"
COMPONENT = Network(0, "", image_size=0, least_size=1)  # of a network of the project itself, 0: not known
NETWORKS: dict[str, Network] = {
    "mnist_cnn": Network(3_274_634, "rescale", image_size=28, channels=1, least_size=1, program=OFFICIAL),
    "lenet": Network(3_274_634, "lenet", image_size=28, channels=1, least_size=4, program=SLIM),
    "cifarnet": Network(1_756_426, "cifarnet", image_size=32, least_size=4, program=SLIM),
    "cifar10_tutorial": Network(1_068_298, "cifar10_tutorial", image_size=24, least_size=1, program=TUTORIAL),
    "fast_cnn": Network(570_296, "shifted", image_size=32, least_size=9, mirrors=True),
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


def network_facts(name: str) -> Network:
    """What is known of a network without building it."""
    return COMPONENT if is_component(name) else NETWORKS[name]


def network_name(given: Any) -> Any:
    """Our name of a network of Keras Applications, such as mobilenet_v2 for MobileNetV2, else the value."""
    return SPELLINGS.get(given, given) if isinstance(given, str) else given


BY_NAME = "imagenet"  # as model.weights
BASE = "https://storage.googleapis.com/tensorflow/keras-applications/"
SMALL = ("mnist_cnn", "lenet", "cifarnet", "cifar10_tutorial", "fast_cnn")  # never trained on ImageNet
NETWORK_SIZE = "network"  # as preprocessing.image_size
LAPTOP = ("mobilenet_v2", "mobilenet_v2_035", "mobilenet_v3_small")  # to name in messages
# As Keras' documentation states them; it states none for the others.
LICENCES = {
    "vgg": "CC-BY-4.0", "keras_resnet_v1": "MIT", "inception": "Apache-2.0", "mobilenet": "Apache-2.0",
    "nasnet": "Apache-2.0",
}  # fmt: skip
# MobileNet V1 and V2 have weights for several image sizes.
MOBILENET_V1 = {
    "mobilenet_v1": "1_0", "mobilenet_v1_075": "7_5", "mobilenet_v1_050": "5_0", "mobilenet_v1_025": "2_5",
}  # fmt: skip
MOBILENET_V1_SIZES = (128, 160, 192, 224)
MOBILENET_V2 = {
    "mobilenet_v2": "1.0", "mobilenet_v2_140": "1.4", "mobilenet_v2_130": "1.3", "mobilenet_v2_075": "0.75",
    "mobilenet_v2_050": "0.5", "mobilenet_v2_035": "0.35",
}  # fmt: skip
MOBILENET_V2_SIZES = (96, 128, 160, 192, 224)
HUB, HUB_FILE = "https://huggingface.co/keras/", "model.weights.h5"  # in a folder per preset
PRESETS = {
    "vit_base_16": "vit_base_patch16_224_imagenet", "vit_base_32": "vit_base_patch32_384_imagenet",
    "vit_large_16": "vit_large_patch16_224_imagenet",
    "deit_tiny_16": "deit_tiny_distilled_patch16_224_imagenet",
    "deit_small_16": "deit_small_distilled_patch16_224_imagenet",
    "deit_base_16": "deit_base_distilled_patch16_224_imagenet",
}  # fmt: skip
with Path(__file__).with_name("published_weights.csv").open(encoding="utf-8", newline="") as _stream:
    # Path below BASE and digest: MD5 if it has 32 digits, SHA-256 if it has 64.
    FILES = {each["network"]: (each["path"], each["digest"]) for each in csv.DictReader(_stream)}
PUBLISHED = {*FILES, *MOBILENET_V1, *MOBILENET_V2, *PRESETS}
PRETRAINED = tuple(name for name in NETWORKS if name in PUBLISHED)


class PublishedWeights(NamedTuple):
    """A published file of weights."""

    folder: str  # address, with a slash at its end
    name: str
    digest: str | None  # MD5 or SHA-256, by its length; None where Keras has none
    licence: str | None
    preset: str = ""  # of KerasHub, whose files all have one name

    @property
    def url(self) -> str:
        """The address of the file."""
        return self.folder + self.name

    @property
    def file(self) -> Path:
        """Where the file lies in the folder of downloads."""
        return Path(self.preset, self.name)


def published(network: str, image_size: int | None) -> PublishedWeights | None:
    """The published weights of a network for the nearest image size; None if there are none."""
    if network not in PRETRAINED:
        return None
    if preset := PRESETS.get(network):
        return PublishedWeights(f"{HUB}{preset}/resolve/main/", HUB_FILE, None, "Apache-2.0", preset)
    wanted = image_size or 224
    if network in MOBILENET_V1:
        size = min(MOBILENET_V1_SIZES, key=lambda each: abs(each - wanted))
        path, digest = f"mobilenet/mobilenet_{MOBILENET_V1[network]}_{size}_tf_no_top.h5", None
    elif network in MOBILENET_V2:
        size = min(MOBILENET_V2_SIZES, key=lambda each: abs(each - wanted))
        kind = f"{MOBILENET_V2[network]}_{size}_no_top.h5"
        path, digest = f"mobilenet_v2/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_{kind}", None
    else:
        path, digest = FILES[network]
    folder, _, name = path.rpartition("/")
    licence = next((LICENCES[start] for start in LICENCES if network.startswith(start)), None)
    return PublishedWeights(f"{BASE}{folder}/", name, digest, licence)
