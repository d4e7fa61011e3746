"""Closed lists of names in params.yaml and in data; checking one does not import the code behind it."""

from typing import Literal, get_args

from perennial.base.errors import ConfigError

OTHER_PROVIDERS = {"abfs", "az", "azure", "gcs", "gs"}

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
Task = Literal["multiclass", "multilabel"]  # one label an image, or several
Severity = Literal["error", "warn", "ignore"]
Schedule = Literal["fixed", "exponential", "polynomial", "cosine", "piecewise"]
Sink = Literal["mlflow"]
EXTRAS = ("docker", "gpu", "heic", "keras-hub", "kubernetes", "mlflow", "onnx", "ray", "tune")
Transparency = Literal["drop", "white"]
Split = Literal["train", "validation", "test"]
# How a run was recorded: `waiting` for a person, on branch run/RUN; `kept`, not pushed, on local unpushed/RUN.
Outcome = Literal["promoted", "not promoted", "waiting", "unchanged", "kept", "refused"]
LOST_RACE: Outcome = "refused"  # another run has changed the champion or the branch
# The scores on validation by which a training may stop, the main one first.
STOP_METRICS: dict[Task, tuple[str, ...]] = {
    "multiclass": ("accuracy", "loss", "recall_at_5"), "multilabel": ("map", "loss"),
}  # fmt: skip
SCORE_NAMES: dict[Task, str] = {"multiclass": "accuracy", "multilabel": "mAP"}  # of the main score, for people
SPLITS: tuple[Split, ...] = get_args(Split)
UNKNOWN = "unknown"  # the answer of a model that is not sure enough, which is no class
# The words by which folders, files and tables name a split, in any case.
SPLIT_WORDS: dict[str, Split] = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "eval": "validation", "evaluation": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip


class OtherProvider(ConfigError, ValueError):
    """An address in a bucket of another provider than S3, also as the value of a key of params.yaml."""


def is_bucket(url: str) -> bool:
    """Whether a URL or path names objects in S3, and not in a folder; other providers are refused."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme in OTHER_PROVIDERS:
        raise OtherProvider(
            f"{scheme}:// is not supported; use a folder or s3://bucket/prefix, which also reaches Google's "
            "buckets with AWS_ENDPOINT_URL=https://storage.googleapis.com and HMAC keys"
        )
    return bool(separator) and scheme == "s3"


def split_named(word: str) -> Split | None:
    """Return the split that a word names; None if it names none."""
    return SPLIT_WORDS.get(word.strip().casefold())
