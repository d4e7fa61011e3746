"""The sections of params.yaml about what becomes of a trained model."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from perennial.config.sections import PathsConfig
from perennial.config.types import SOURCES, Devices, Section, Seed

EXAMPLE = "name a folder of its own, such as /srv/models/digits"
Format = Literal["tflite_float32", "tflite_float16", "tflite_int8", "onnx", "frozen_graph", "text_graph"]


class EvaluateConfig(Section):
    """How the model is scored."""

    batch_size: int = Field(
        ge=1, description="examples scored at once, over all devices; changes speed, not scores"
    )
    devices: Devices = Field(description="which devices score; changes speed, not scores")
    calibration_bins: int = Field(
        ge=1, le=100, description="intervals of confidence of the reliability diagram and of ECE"
    )
    bootstrap_resamples: int = Field(
        ge=0, le=100_000, description="resamples behind each confidence interval; 0: no intervals"
    )
    confidence_level: float = Field(gt=0, lt=1, description="share of such intervals that hold the true value")
    seed: Seed = Field(description="of the resamples")


class CardConfig(Section):
    """What only a person can say of a model."""

    licence: str | None = Field(description="of the exported model, such as Apache-2.0; null: not stated")
    intended_use: str | None = Field(description="what the model is for; null: not stated")


class ExportConfig(Section):
    """What is exported beside the SavedModel, and what is said of it."""

    formats: list[Format] = Field(description="further forms, in assets.extra of the export")
    representative_examples: int = Field(
        ge=1, description="tflite_int8: training examples that its scales are measured on"
    )
    card: CardConfig


class GateConfig(Section):
    """What a model must reach to be promoted."""

    min_accuracy: float = Field(ge=0, le=1, description="test accuracy, a fraction")


class PublishConfig(Section):
    """Where promoted models go."""

    url: str | None = Field(description="folder that receives a version for each promoted model; null: none")


def publish_folder(url: str, paths: PathsConfig) -> Path:
    """The folder that `publish.url` or the command line names.

    Raises:
        ValueError: it names none, or one that is not kept or is the project's own.
    """
    if "://" in url:
        raise ValueError("must be a folder; addresses such as s3:// cannot be published to yet")
    if not url:
        raise ValueError("must name a folder and is empty")
    if url.startswith("~"):
        raise ValueError("must be a folder, written out: ~ stands for nothing here")
    here, real = Path.cwd(), Path(url).resolve()
    if here.is_relative_to(real):
        raise ValueError(f"must not hold the project; {EXAMPLE}")
    replaced = {name: getattr(paths, name).resolve() for name in type(paths).model_fields}
    for name, path in replaced.items():
        if real.is_relative_to(path):
            raise ValueError(f"must not lie in paths.{name}, which a run may replace; {EXAMPLE}")
    if real.is_relative_to(here):
        top = real.relative_to(here).parts[0]
        # Folders above what runs make, such as data, are what `make clean` removes; so are hidden ones.
        if (
            top.startswith(".")
            or top in SOURCES
            or any(path.is_relative_to(here / top) for path in replaced.values())
        ):
            raise ValueError(f"must not lie in {top}, which the project has for itself; {EXAMPLE}")
    return Path(url)
