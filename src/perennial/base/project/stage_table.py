"""What each stage of dvc.yaml is. All tables of stages are made from these records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What the rest of the program knows of a stage, besides its module in `perennial.stages`."""

    about: str  # its help
    written: tuple[str, ...]  # names in `paths` of its outputs, as dvc.yaml orders them; folders end with /
    in_git: tuple[str, ...] = ()  # those of its outputs that git holds, not DVC's cache
    environment: tuple[str, ...] = ()  # files of requirements/ with the packages that can change its results
    tensorflow: bool = False  # whether its process imports TensorFlow
    fetches: Literal["data", "weights"] | None = None  # what it brings from outside git and other outputs
    says_inputs: bool = False  # whether its result holds the parameters and the code that it used
    example: str  # a value to try with `--set`
    page: str  # of docs/how-to

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names in `paths` of its outputs."""
        return tuple(name.removesuffix("/") for name in self.written)

    @property
    def folders(self) -> tuple[str, ...]:
        """Those outputs that are folders."""
        return tuple(name.removesuffix("/") for name in self.written if name.endswith("/"))


# In the order of dvc.yaml and of the flow.
STAGES: Mapping[str, Stage] = {
    "download": Stage(
        about="Fetch the original files and verify their digests.",
        written=("raw/",),
        environment=("data",),
        fetches="data",
        example="dataset.name=mnist",
        page="data",
    ),
    "convert": Stage(
        about="Write TFRecord shards, labels and a manifest.",
        written=("records/",),
        environment=("data",),
        example="dataset.shards=4",
        page="data",
    ),
    "validate": Stage(
        about="Check every record, decode every image and report problems.",
        written=("validation", "validation_page", "index/"),
        environment=("data",),
        example="validate.severity.near_duplicate=ignore",
        page="validate",
    ),
    "initialize": Stage(
        about="Copy the weights from which training starts.",
        written=("initial_weights/",),
        fetches="weights",
        example="model.weights=null",
        page="fine-tuning",
    ),
    "train": Stage(
        about="Train until the stop rule or the last step.",
        written=("model/", "training", "curves/"),
        environment=("train",),
        tensorflow=True,
        says_inputs=True,
        example="train.epochs=5",
        page="training",
    ),
    "evaluate": Stage(
        about="Score the model on the test split, each example once.",
        written=(
            "predictions",
            "label_errors",
            "metrics",
            "confusion",
            "reliability",
            "scores",
            "confusion_plot",
            "reliability_plot",
        ),
        in_git=("scores",),
        environment=("train", "evaluate"),
        tensorflow=True,
        example="evaluate.confidence_level=0.9",
        page="evaluation",
    ),
    "export": Stage(
        about="Write a SavedModel and compare its predictions to the model's.",
        written=("export/",),
        environment=("train", "export"),
        tensorflow=True,
        example="export.formats=[tflite_float16]",
        page="export",
    ),
    "champion": Stage(
        about="Fetch the predictions of the champion on the same test split.",
        written=("champion/",),
        environment=("train",),
        example="evaluate.devices=cpu:1",
        page="gate",
    ),
    "gate": Stage(
        about="Decide whether the model is good enough to be promoted.",
        written=("decision",),
        environment=("train",),
        says_inputs=True,
        example="gate.min_accuracy=0.9",
        page="gate",
    ),
}
IN_GIT = {name for stage in STAGES.values() for name in stage.in_git}
FOLDERS = {name for stage in STAGES.values() for name in stage.folders}
WITH_TENSORFLOW = {name for name, stage in STAGES.items() if stage.tensorflow}
SAYING_INPUTS = {name for name, stage in STAGES.items() if stage.says_inputs}
