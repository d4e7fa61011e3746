"""A trained model on disk: its weights, and a description from which it is built and fed."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import keras
import numpy as np
import tensorflow as tf
from pydantic import Field

from perennial.base import files
from perennial.base.choices import Task
from perennial.base.config.data import ModelConfig
from perennial.base.config.fields import is_component
from perennial.base.documents import JsonFile
from perennial.base.errors import ConfigError, DataError
from perennial.base.stage_state import outputs
from perennial.data.preprocessing import ImageSpec
from perennial.model import models
from perennial.model.export_layout import DESCRIPTION

FILE = "model.json"
WEIGHTS = "weights"


class Pretrained(JsonFile, extra="forbid"):
    """The origin of the weights that a training started from."""

    source: str  # URL of Keras Applications' file; its name if not verified; or "a file"
    sha256: str
    verified: bool = False  # whether it has the digest that Keras publishes, which some files lack
    licence: str | None  # of the published file, as Keras' documentation states it; None where it states none


Share = Annotated[float, Field(ge=0, le=1)]


class Abstention(JsonFile, extra="forbid"):
    """To which images a model says unknown."""

    max_error: float  # share of the answers that may be wrong, 0..1
    threshold: float | None  # confidence from which it answers; None: from none


class Confidence(JsonFile, extra="forbid"):
    """What makes the confidence of a model mean what it says, from its validation split."""

    # By which the logits are divided. None: as the network says.
    temperature: float | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    # None: it answers every image.
    abstention: Abstention | None = Field(default=None, exclude_if=lambda value: value is None)
    # From which probability on an image has a label, for each class; None: one label an image.
    thresholds: list[Share] | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def factor(self) -> np.float32 | None:
        """The constant by which logits are multiplied, which TensorFlow Lite does in integers, too."""
        return None if self.temperature is None else np.float32(1 / self.temperature)


class Description(JsonFile, extra="forbid"):
    """Everything about a model except its weights."""

    name: str  # in MODELS, or a component
    options: ModelConfig  # that it was built with
    task: Task = Field(default="multiclass", exclude_if=lambda value: value == "multiclass")
    classes: list[str]  # in the order of the logits
    pixels: ImageSpec
    data: str  # digest of the manifest of its training data
    weights_sha256: str
    pretrained: Pretrained | None = None  # origin of ImageNet weights; None: other start weights
    # Of an export; fitted after the training, which therefore does not know it.
    confidence: Confidence = Field(default=Confidence(), exclude_if=lambda value: value == Confidence())
    mirror: bool = Field(default=False, exclude_if=lambda value: not value)  # `export.mirror`; of an export

    def build(self) -> keras.Model:
        """Build the model with new weights."""
        return models.named(self.name).build(self.pixels.model_shape, len(self.classes), self.options)


def save(folder: Path, model: keras.Model, description: Description) -> None:
    """Write a model folder atomically: a TensorFlow checkpoint of the weights, and model.json."""
    with outputs.new_folder(folder, "train") as new:
        tf.train.Checkpoint(**_saved(model)).write(str(new / WEIGHTS))
        files.write_json(new / FILE, description.model_dump(mode="json"))


def load(folder: Path) -> tuple[keras.Model, Description]:
    """Load the model in a folder and its description."""
    return _loaded(folder, folder / FILE, folder / WEIGHTS, _saved, made_by="train")


def load_export(folder: Path) -> tuple[keras.Model, Description]:
    """Load the model in an export and its description; raises the errors of `load`."""
    weights = folder / "variables" / "variables"
    return _loaded(folder, folder / DESCRIPTION, weights, _listed, made_by="export")


def _saved(model: keras.Model) -> dict[str, object]:
    """The objects of a model by name; all weights if layers are in lists, which TensorFlow does not see."""
    checkpoint = tf.train.Checkpoint(model=model)
    seen = {id(each) for each in tf.train.TrackableView(checkpoint).descendants()}
    return {"model": model} if all(id(weight) in seen for weight in model.weights) else _listed(model)


def _listed(model: keras.Model) -> dict[str, object]:
    return {"weights": [weight.value for weight in model.weights]}


def _loaded(
    folder: Path, file: Path, weights: Path, saved: Callable[[keras.Model], dict[str, object]], *, made_by: str
) -> tuple[keras.Model, Description]:
    """Load a checkpoint; `saved` maps names in it to objects of a model."""
    try:
        description = Description.model_validate_json(file.read_bytes())
        model = description.build()
        with files.plainly_named(weights.parent) as plain:
            status = tf.train.Checkpoint(**saved(model)).read(str(plain / weights.name))
            status.assert_existing_objects_matched().expect_partial()
    except ConfigError as error:
        if is_component(description.name):
            raise  # its code is wrong, not the folder
        raise DataError(f"{folder} does not hold a complete model: {error}") from error
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; `dvc repro {made_by}` makes it") from error
    except (ValueError, LookupError, AssertionError, tf.errors.OpError) as error:
        raise DataError(f"{folder} does not hold a complete model: {error}") from error
    found = weights_sha256(model)
    if found != description.weights_sha256:
        raise DataError(f"{folder}: weights with sha256 {found}, expected {description.weights_sha256}")
    return model, description


def weights_sha256(model: keras.Model) -> str:
    """SHA-256 of all weights in model order, as float32 little-endian."""
    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(np.asarray(weight, "<f4").tobytes())
    return digest.hexdigest()
