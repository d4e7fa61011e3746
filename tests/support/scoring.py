"""A model with random weights and images of noise to evaluate it on."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray
from support import records

from perennial.base import config
from perennial.base.config import Config
from perennial.base.config.data import ModelConfig
from perennial.base.devices import devices
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest
from perennial.model.evaluation import inference, split
from perennial.model.models import model_folder
from perennial.model.models.model_folder import Description

ROOT = Path(__file__).parents[2]
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MOST = 350
THOROUGH = os.environ.get("FAULTS") == "all"
SIZES = {  # of splits, by batch size
    batch: sorted({1, batch - 1, batch, batch + 1, 2 * batch + 1, MOST} - {0})
    if THOROUGH
    else [1, batch - 1, batch + 1, MOST]
    if batch == 7
    else [2 * batch + 1]
    for batch in (1, 7, 128)
}
GREY = ImageSpec(
    preprocessing="rescale", height=8, width=8, channels=1, image_size=None, grayscale=False, fast=True
)
CROPPED = ImageSpec(
    preprocessing="cifar10_tutorial", height=32, width=32, channels=3, image_size=24, grayscale=False, fast=True
)


@dataclass(frozen=True)
class World:
    """A model, the examples to score it on, and its logits for them."""

    model: keras.Model
    description: Description
    images: NDArray[np.uint8]  # [N, height, width, channels]
    labels: NDArray[np.int64]
    logits: NDArray[np.float32]


def world(examples: int = MOST, name: str = "mnist_cnn", pixels: ImageSpec = GREY) -> World:
    """Deterministic; about two of three predictions are correct, with different probabilities."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (MOST, *pixels.raw_shape), np.uint8)
    keras.utils.set_random_seed(0)
    options = ModelConfig(name=name, dropout=None, conv_stddev=None, labels_offset=0)
    description = Description(
        name=name, options=options, classes=list(CLASSES), pixels=pixels, data="", weights_sha256=""
    )
    model = description.build()
    *_, kernel, bias = model.weights
    kernel.assign(kernel.numpy() * 40)
    # Without this it would predict the same class for all noise.
    bias.assign(-model(pixels.evaluation(images), training=False).numpy().mean(axis=0))
    logits = model(pixels.evaluation(images), training=False).numpy()
    labels = np.where(random.random(MOST) < 2 / 3, logits.argmax(axis=1), np.arange(MOST) % 10)
    description = description.model_copy(update={"weights_sha256": model_folder.weights_sha256(model)})
    return World(model, description, images[:examples], labels[:examples], logits[:examples])


def write_records(
    folder: Path, world: World, sizes: Mapping[manifest.Split, int], classes: Sequence[str] = CLASSES
) -> None:
    """Writes the first so many examples of the world as each split, in two shards."""
    data = [records.datum(image, int(label)) for image, label in zip(world.images, world.labels, strict=True)]
    splits = {split: [data[: size // 2], data[size // 2 : size]] for split, size in sizes.items()}
    records.write_folder(folder, splits, classes)


def configured(records: Path, batch_size: int) -> Config:
    """The project's parameters for these records."""
    usual = config.load(ROOT / "params.yaml")
    changed = {
        "paths": replace(usual.paths, records=records),
        "evaluate": usual.evaluate.model_copy(update={"batch_size": batch_size}),
    }
    return usual.model_copy(update=changed)


def found(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Scores by split and batch size, and the devices that have a copy of the model."""
    loaded = model_folder.load(folder / "model")
    cells = {}
    for batch, sizes in SIZES.items():
        for size in sizes:
            chosen = configured(folder / str(size), batch)
            given = split.evaluate(chosen, "test", lambda: loaded, names)
            cells[f"{size} in batches of {batch}"] = {
                "predicted": given.scores.predicted.tolist(),
                "probabilities": given.predictions.p.tolist(),
                "scores": given.scores.summary,
            }
    copies = inference.copies(*loaded, names).values()
    where = sorted({copy.weights[0].value.device.rpartition("device:")[2] for copy in copies})
    return {"devices": where, "cells": cells}


def main(folder: Path, choice: str) -> None:
    """Print `found` of this process and these devices."""
    names = devices.configure(*devices.select(choice, key="devices"))
    sys.stdout.write(json.dumps(found(folder, names)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
