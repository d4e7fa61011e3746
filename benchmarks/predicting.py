"""One measurement a process: `python -m benchmarks.predicting ours EXPORT PHOTOGRAPHS`; see predict.py."""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import perennial

SECONDS = 4.0  # of a measurement, whole passes over the photographs
BATCH = 32  # images that Keras gets at once, its default
CLASSES = 5


def export(name: str, side: str, folder: str) -> None:
    """Exports a network with new weights for photographs of any size."""
    model_folder, saved_model, preprocessing, sections = (
        importlib.import_module(f"perennial.{module}")
        for module in (
            "model.models.model_folder",
            "model.export.saved_model",
            "data.preprocessing",
            "base.config.data",
        )
    )
    values = {"name": name, "dropout": None, "conv_stddev": None, "labels_offset": 0}
    size = {"height": None, "width": None, "channels": 3, "image_size": int(side)}
    description = model_folder.Description(
        name=name,
        options=sections.ModelConfig.model_validate(values),
        classes=[f"class {number}" for number in range(CLASSES)],
        pixels=preprocessing.ImageSpec(preprocessing="inception", grayscale=False, fast=True, **size),
        data="",
        weights_sha256="",
    )
    model = description.build()
    description = description.model_copy(update={"weights_sha256": model_folder.weights_sha256(model)})
    Path(folder).mkdir()
    labels = Path(folder).with_name("labels.txt")
    labels.write_text("".join(f"{number}:class {number}\n" for number in range(CLASSES)), encoding="utf-8")
    saved_model.save(Path(folder), model, description, (labels,))


def ours(folder: str, photographs: str) -> None:
    """The files in a folder, from the disk to the answers."""
    import_s, _ = _tensorflow()
    files = sorted(Path(photographs).iterdir())
    begun = time.monotonic()
    model = perennial.load(folder)
    load_s = time.monotonic() - begun
    model.predict(files[0])
    first_s = time.monotonic() - begun
    _report(lambda: len(model.predict(files)), import_s, load_s, first_s)


def keras(folder: str, photographs: str) -> None:
    """The same images, decoded and ready for the model before the clock starts."""
    import_s, tf = _tensorflow()
    model_folder = importlib.import_module("perennial.model.models.model_folder")
    begun = time.monotonic()
    model, description = model_folder.load_export(Path(folder))
    load_s = time.monotonic() - begun
    pixels = description.pixels
    decoded = (tf.io.decode_jpeg(file.read_bytes(), 3) for file in sorted(Path(photographs).iterdir()))
    ready = np.stack([pixels.evaluation_one(image).numpy() for image in decoded])
    asked = time.monotonic()
    model.predict(ready[:1], verbose=0)
    first_s = load_s + time.monotonic() - asked
    _report(lambda: len(model.predict(ready, batch_size=BATCH, verbose=0)), import_s, load_s, first_s)


def _tensorflow() -> tuple[float, Any]:
    """Seconds that its import takes, and what was imported."""
    begun = time.monotonic()
    tf = importlib.import_module("tensorflow")
    tf.config.list_physical_devices()
    return time.monotonic() - begun, tf


def _report(answer: Callable[[], int], import_s: float, load_s: float, first_s: float) -> None:
    """Prints the speed of passes after the first one."""
    answer()
    begun, used, images = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begun < SECONDS:
        images += answer()
    seconds = time.monotonic() - begun
    found = {
        "images_per_second": images / seconds,
        "processor_s_per_image": (time.process_time() - used) / images,
        "import_s": import_s,
        "load_s": load_s,
        "first_answer_s": first_s,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"export": export, "ours": ours, "keras": keras}
    programs[sys.argv[1]](*sys.argv[2:])
