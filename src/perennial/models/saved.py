"""A trained model on disk: its weights, and what is needed to build it and feed it."""

import hashlib
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from pydantic import BaseModel, ConfigDict

from perennial import files
from perennial.errors import DataError
from perennial.models import MODELS
from perennial.preprocessing import Pixels

FILE = "model.json"
WEIGHTS = "weights"


class Description(BaseModel):
    """What a model is apart from its weights."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: str  # in MODELS
    classes: list[str]
    pixels: Pixels
    data: str  # digest of the manifest that it was trained on
    weights_sha256: str

    def build(self) -> keras.Model:
        """The model with new weights."""
        return MODELS[self.name].build(self.pixels.model_shape, len(self.classes))


def save(folder: Path, model: keras.Model, description: Description) -> None:
    """Writes a model folder whole: a TensorFlow checkpoint of the weights, then model.json."""
    with files.new_folder(folder) as new:
        tf.train.Checkpoint(model=model).write(str(new / WEIGHTS))
        files.write_json(new / FILE, description.model_dump())


def load(folder: Path) -> tuple[keras.Model, Description]:
    """The model in a folder and its description.

    Raises:
        DataError: the folder is not there or damaged, or its weights have another digest than in model.json.
    """
    try:
        description = Description.model_validate_json((folder / FILE).read_bytes())
        model = description.build()
        status = tf.train.Checkpoint(model=model).read(str(folder / WEIGHTS))
        status.assert_existing_objects_matched()
    except FileNotFoundError as error:
        raise DataError(f"{folder / FILE} does not exist; `dvc repro train` makes it") from error
    except (ValueError, LookupError, AssertionError, tf.errors.OpError) as error:
        raise DataError(f"{folder} holds no whole model: {error}") from error
    found = weights_sha256(model)
    if found != description.weights_sha256:
        raise DataError(f"{folder}: weights with sha256 {found}, expected {description.weights_sha256}")
    return model, description


def weights_sha256(model: keras.Model) -> str:
    """The SHA-256 of all weights in model order, as float32 little-endian."""
    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(np.asarray(weight, "<f4").tobytes())
    return digest.hexdigest()
