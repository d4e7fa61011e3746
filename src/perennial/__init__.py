"""Perennial retrains image classifiers on a schedule and rebuilds any of them from a git revision."""

import importlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from perennial.base.errors import (
    ConfigError,
    DataError,
    InputsChanged,
    Interrupted,
    PerennialError,
    QualityError,
)

if TYPE_CHECKING:
    from perennial.model.inference.classifier import Classifier

__all__ = ["ConfigError", "DataError", "InputsChanged", "Interrupted", "PerennialError", "QualityError", "load"]


def load(path: "str | os.PathLike[str]") -> "Classifier":
    """Load the model of an export, a version, or the current version of a publish folder or S3 URL.

    It takes raw images: `load("models/export").predict("rose.jpg")`. A model at an S3 URL such as
    `s3://bucket/digits` is fetched into the user's cache folder and verified. TensorFlow is imported here,
    not before, and without the messages of its start-up.

    Raises:
        DataError: there is no model, or it is incomplete.
    """
    tensorflow = importlib.import_module("perennial.base.processes.tensorflow")
    with tempfile.TemporaryDirectory() as folder:
        module = tensorflow.import_quietly("perennial.release.publishing.load", Path(folder, "log"))
    loaded: Classifier = module.load(path)
    return loaded
