"""An export that takes photographs of any size, and what it has to say of some."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from support.odd_images import saved
from support.raw import picture

import perennial
from perennial.base import documents, files
from perennial.base.config.data import ModelConfig
from perennial.data.preprocessing import ImageSpec
from perennial.model.export import saved_model
from perennial.model.export.encodings import Takes
from perennial.model.export_layout import DESCRIPTION
from perennial.model.inference.classifier import Classifier
from perennial.model.models import model_folder
from perennial.model.models.model_folder import Confidence, Description

CLASSES = ("cat", "dog", "a bird: owl")
SIDE = 16
OPTIONS = ModelConfig(name="lenet", dropout=None, conv_stddev=None, labels_offset=0)


@dataclass(frozen=True)
class World:
    """A model that nobody trained, and the folder of its export."""

    model: keras.Model
    pixels: ImageSpec
    folder: Path

    def expected(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Probabilities for pixels uint8 [height, width, channels], by the shortest way there is."""
        colours = np.broadcast_to(image, (*image.shape[:2], self.pixels.channels))
        ready = self.pixels.evaluation_one(tf.constant(colours))
        return tf.nn.softmax(self.model(ready[None], training=False))[0].numpy()


def write_export(
    folder: Path,
    *,
    side: int | None = None,
    scale: float = 1,
    name: str = "lenet",
    bandwidth: float | None = None,
    channels: int = 3,
    takes: Takes = saved_model.PLAIN,
    thresholds: Sequence[float] | None = None,
) -> World:
    """Exports a model whose answers differ from image to image; `side` is of images, None for any size.

    With a bandwidth, it measures images, too, as an export with a reference does; with thresholds, it gives
    several labels.
    """
    keras.utils.set_random_seed(0)
    pixels = ImageSpec(
        preprocessing="rescale", height=side, width=side, channels=channels, image_size=SIDE, grayscale=False,
        fast=True,
    )  # fmt: skip
    description = Description(
        name=name, options=OPTIONS, classes=list(CLASSES), pixels=pixels, data="d", weights_sha256=""
    )
    model = description.build()
    model.weights[-2].assign(model.weights[-2] * scale)
    description = description.model_copy(update={"weights_sha256": model_folder.weights_sha256(model)})
    if thresholds is not None:
        confidence = Confidence(thresholds=list(thresholds))
        description = description.model_copy(update={"task": "multilabel", "confidence": confidence})
    folder.mkdir(parents=True)
    labels = folder.parent / "labels.txt"
    labels.write_text("".join(f"{number}:{name}\n" for number, name in enumerate(CLASSES)))
    saved_model.save(folder, model, description, (labels,), bandwidth, takes)
    return World(model, pixels, folder)


def abstain(export: Path, threshold: float | None) -> Path:
    """Make an export answer unknown below a confidence; None: always."""
    description = documents.read_json(export / DESCRIPTION)
    abstention = {"max_error": 0.05, "threshold": threshold}
    files.write_json(export / DESCRIPTION, {**description, "confidence": {"abstention": abstention}})
    return export


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return write_export(tmp_path_factory.mktemp("world") / "export")


@pytest.fixture(scope="session")
def classifier(world: World) -> Classifier:
    return perennial.load(world.folder)


@pytest.fixture
def photographs(tmp_path: Path) -> Callable[[int], list[Path]]:
    """Writes so many JPEG files into the folder `photographs`, of several sizes, all different."""

    def write(count: int) -> list[Path]:
        folder = tmp_path / "photographs"
        folder.mkdir(exist_ok=True)
        files = [folder / f"{number:03}.jpg" for number in range(count)]
        for number, file in enumerate(files):
            file.write_bytes(saved(PIL.Image.fromarray(picture(number, 20 + number % 7)), "JPEG"))
        return files

    return write
