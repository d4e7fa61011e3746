"""Closed lists of names in params.yaml and in data; checking one does not import the code behind it."""

from typing import Literal, get_args

# Schemes of URLs in buckets, and how a person writes them; `base/storage` opens each.
BUCKET_SCHEMES = ("s3", "gs", "azure")
PLACES = "s3://bucket/prefix, gs://bucket/prefix or azure://container/prefix"

Dataset = Literal[
    "digits", "mnist", "cifar10", "flowers", "imagenet", "visualwakewords", "image_folder", "tfrecord"
]
Preprocessing = Literal[
    "auto", "rescale", "lenet", "cifarnet", "cifar10_tutorial", "inception", "vgg", "standard", "shifted",
    "plain",
]  # fmt: skip
Format = Literal[
    "tflite_float32", "tflite_float16", "tflite_int8", "onnx", "frozen_graph", "text_graph", "slim_graph"
]  # fmt: skip
Optimizer = Literal["adadelta", "adagrad", "adam", "adamw", "ftrl", "momentum", "rmsprop", "sgd"]
Severity = Literal["error", "warn", "ignore"]
Schedule = Literal["fixed", "exponential", "polynomial", "cosine", "piecewise"]
Model = Literal[
    "mnist_cnn", "lenet", "cifarnet", "cifar10_tutorial", "fast_cnn", "alexnet_v2", "overfeat", "vgg_a",
    "vgg_16", "vgg_19", "inception_v1", "inception_v2", "inception_v3", "inception_v4", "inception_resnet_v2",
    "resnet_v1_50", "resnet_v1_101", "resnet_v1_152", "resnet_v1_200", "resnet_v2_50", "resnet_v2_101",
    "resnet_v2_152", "resnet_v2_200", "keras_resnet_v1_50", "keras_resnet_v1_101", "keras_resnet_v1_152",
    "keras_resnet_v2_50", "keras_resnet_v2_101", "keras_resnet_v2_152", "mobilenet_v1", "mobilenet_v1_075",
    "mobilenet_v1_050", "mobilenet_v1_025", "mobilenet_v2", "mobilenet_v2_140", "mobilenet_v2_130",
    "mobilenet_v2_075", "mobilenet_v2_050", "mobilenet_v2_035", "mobilenet_v3_large",
    "mobilenet_v3_large_075", "mobilenet_v3_small", "mobilenet_v3_small_075", "nasnet_cifar", "nasnet_mobile",
    "nasnet_large", "pnasnet_mobile", "pnasnet_large", "efficientnet_v2_b0", "efficientnet_v2_b1",
    "efficientnet_v2_b2", "efficientnet_v2_b3", "efficientnet_v2_s", "efficientnet_v2_m", "efficientnet_v2_l",
    "convnext_tiny", "convnext_small", "convnext_base", "convnext_large", "convnext_xlarge", "vit_base_16",
    "vit_base_32", "vit_large_16", "deit_tiny_16", "deit_small_16", "deit_base_16",
]  # fmt: skip
Sink = Literal["mlflow"]
Transparency = Literal["drop", "white"]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
UNKNOWN = "unknown"  # the answer of a model that is not sure enough, which is no class
# The words by which folders, files and tables name a split, in any case.
SPLIT_WORDS: dict[str, Split] = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "eval": "validation", "evaluation": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip


def split_named(word: str) -> Split | None:
    """Return the split that a word names; None if it names none."""
    return SPLIT_WORDS.get(word.strip().casefold())
