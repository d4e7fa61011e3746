"""The sections of params.yaml, key by key."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from perennial.config import names
from perennial.config.types import SOURCES, AnyPath, AutoOrCount, Section, Seed, Severity, Url


class DatasetConfig(Section):
    """Which images, from where, and how they are split."""

    name: names.Dataset = Field(description="the data set")
    base_url: Url | None = Field(
        description="http, https or file address that replaces the built-in mirrors; null: the mirrors",
    )
    path: AnyPath = Field(description="folder or archive of your own: image_folder and tfrecord read it")
    digests: Literal["pinned", "record"] = Field(
        description="pinned: only the known files; record: trust the first download, check later ones"
    )
    validation_fraction: float = Field(
        gt=0, lt=1, description="share of the training examples held out for validation, 0..1"
    )
    seed: Seed = Field(description="chooses the examples that are held out")
    shards: AutoOrCount = Field(description="TFRecord files a split, or auto: 100 to 200 MB each")
    layout: Literal["perennial", "slim"] = Field(
        description="file names, splits and shard counts; slim's cannot be trained on here"
    )
    on_bad_image: Literal["fail", "skip"] = Field(
        description="what convert does about a file that is no sound image"
    )


class SeverityConfig(Section):
    """What a problem that is a matter of judgement does: stops the run, is reported, or nothing."""

    duplicate_across_splits: Severity
    duplicate_in_split: Severity
    near_duplicate: Severity
    class_missing: Severity
    class_imbalance: Severity
    drift_labels: Severity
    drift_brightness: Severity


class ValidateConfig(Section):
    """How closely the records are looked at, and what is too much."""

    decode: Literal["all", "sample", "none"] = Field(
        description="which images are decoded: all, one in ten, or none"
    )
    near_duplicate_bits: int | None = Field(
        ge=0, le=8, description="bits of 64 that the perceptual hashes of near duplicates differ in; null: off"
    )
    max_class_ratio: float = Field(ge=1, description="examples of the largest class over those of the smallest")
    max_label_drift: float = Field(
        gt=0, le=1, description="largest change of a class's share since the version before"
    )
    max_brightness_drift: float = Field(
        gt=0, le=1, description="largest change of the brightness distribution since the version before"
    )
    severity: SeverityConfig


class ComputeConfig(Section):
    """Where convert and validate do their work; changes speed, not results."""

    engine: Literal["processes", "ray"] = Field(description="this machine, or the cluster of RAY_ADDRESS")
    processes: AutoOrCount = Field(description="processes on this machine, or auto: one a core")


class PreprocessingConfig(Section):
    """What happens to pixels between the record and the model."""

    name: names.Preprocessing = Field(description="the preprocessing; auto: the one the architecture came with")
    image_size: int | None = Field(
        ge=1, le=4096, description="pixels a side that the model gets; null: the data set's own size"
    )
    grayscale: bool = Field(description="one channel in place of three")
    fast: bool = Field(description="inception: the cheap distortions of colour and size")


class ModelConfig(Section):
    """The architecture."""

    name: names.Model = Field(description="the architecture")
    dropout: float | None = Field(
        ge=0, lt=1, description="share of units left out in training; null: the architecture's own"
    )
    conv_stddev: float | None = Field(
        gt=0, description="cifar10_tutorial: spread of the convolutions' first weights; null: 0.05"
    )
    labels_offset: int = Field(
        ge=0, description="classes at the start of the list that the model leaves out, such as a background"
    )
    imagenet_weights: str | None = Field(
        description="file with Keras Applications' ImageNet weights of this architecture; null: new weights"
    )


class PathsConfig(Section):
    """Where everything lies, relative to the folder that the command is started in."""

    raw: AnyPath
    records: AnyPath
    validation: AnyPath
    validation_page: AnyPath
    index: AnyPath
    model: AnyPath
    training: AnyPath
    curves: AnyPath
    metrics: AnyPath
    confusion: AnyPath
    confusion_plot: AnyPath
    reliability: AnyPath
    reliability_plot: AnyPath
    predictions: AnyPath
    export: AnyPath
    decision: AnyPath
    report: AnyPath
    runs: AnyPath
    work: AnyPath
    digests: AnyPath
    baseline: AnyPath

    @model_validator(mode="after")
    def _apart(self) -> Self:
        paths = {name: getattr(self, name) for name in type(self).model_fields}
        here = Path.cwd()
        for name, path in paths.items():
            real = path.resolve()  # whatever it is called: `data/../src` and links lead there too
            if here.is_relative_to(real):
                raise PydanticCustomError("overlap", f"paths.{name} must not hold the project, got {path}")
            if real.is_relative_to(here) and (top := real.relative_to(here).parts[0]) in SOURCES:
                raise PydanticCustomError("overlap", f"paths.{name} must not lie in {top}, got {path}")
            for other, above in paths.items():
                if other != name and real.is_relative_to(above.resolve()):
                    raise PydanticCustomError(
                        "overlap", f"paths.{name} must not lie in paths.{other}, got {path} and {above}"
                    )
        return self
