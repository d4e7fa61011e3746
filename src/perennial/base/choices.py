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
