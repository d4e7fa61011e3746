"""The scored model in the forms that programs load, proven to agree with it before they are put in place."""

import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from perennial import files, formats, outputs
from perennial.config import Config
from perennial.errors import DataError, QualityError
from perennial.evaluation import predictions
from perennial.formats import FORMATS, requirements
from perennial.models import card, saved, servable
from perennial.models.saved import Description
from perennial.parity import new_process
from perennial.parity.comparison import Found, Job
from perennial.records import manifest, pipeline
from perennial.records.manifest import Manifest
from perennial.runtime import devices
from perennial.validation import integrity

log = logging.getLogger(__name__)
README = "README.md"
LIST = f"{formats.EXTRA}/files.json"  # the digest of each file, by which publish knows the export again
SCORED = ("data", "model", *card.SCORES, "intervals", "confidence_level", "calibration", "per_class")
TRAINED = ("weights_sha256", "step", "stopped_by")
LOG = "parity.log"  # of the process that compares


def export(config: Config) -> None:
    """Writes the SavedModel with labels and model card, and the other forms that are asked for.

    The old export stays until a new process has found that the new one answers as the scored model did.

    Raises:
        ConfigError: a form cannot be made of this model, or the devices are not there.
        DataError: the model, the records or the predictions are not sound.
        QualityError: the model is not the one that was scored, or the export gives other answers.
    """
    started = time.monotonic()
    devices.select(config.evaluate.devices, key="evaluate.devices")
    devices.configure("cpu", [0])  # the memory of a GPU is for the process that compares
    model, description = saved.load(config.paths.model)
    requirements.require(config.export.formats, description.pixels)
    measured = "tflite_int8" in config.export.formats  # on training images
    data = integrity.require_valid(config.paths.records, ("train", "test") if measured else ("test",))
    metrics = _scores(config, description)
    with outputs.new_folder(config.paths.export, "export") as folder:
        _write(config, folder, model, description, data, metrics)
        # Inside the block: a difference raises, and the new folder never takes the old one's place.
        found = new_process.compare(_job(config, folder, description), config.paths.work / LOG)
        files.write_json(folder / LIST, files.digests(folder))
    for form in found:
        _tell(form)
    log.info("exported to %s in %.1f s", config.paths.export, time.monotonic() - started)


def _scores(config: Config, description: Description) -> dict[str, Any]:
    """The metrics, if they and the predictions are of this model and these records.

    Raises:
        DataError: there are none, or they are not whole.
        QualityError: they are of others.
    """
    paths = config.paths
    metrics = _record(paths.metrics, SCORED, made_by="evaluate")
    said = predictions.read(paths.predictions)
    expected = {
        "model": (description.weights_sha256, paths.model),
        "data": (manifest.digest(paths.records), paths.records),
    }
    trained = _record(paths.training, TRAINED, made_by="train")["weights_sha256"]
    if trained != description.weights_sha256:
        raise QualityError(
            f"{paths.training} is of the model {trained}, but {paths.model} holds "
            f"{description.weights_sha256}; run `dvc repro train`; the old export was kept"
        )
    for file, scored in (
        (paths.metrics, metrics),
        (paths.predictions, {"model": said.model, "data": said.data}),
    ):
        for what, (digest, where) in expected.items():
            if scored[what] != digest:
                raise QualityError(
                    f"{file} is of the {what} {scored[what]}, but {where} holds {digest}; run `dvc repro "
                    "evaluate`; the old export was kept"
                )
    return metrics


def _record(file: Path, keys: Sequence[str], *, made_by: str) -> dict[str, Any]:
    """What a stage wrote, in which these keys have to be."""
    record: dict[str, Any] = files.read_json(file)
    for key in keys:
        if key not in record:
            raise DataError(
                f"{file} has no {key}; `dvc repro {made_by}` makes or restores it; the old export was kept"
            )
    return record


def _write(
    config: Config,
    folder: Path,
    model: keras.Model,
    description: Description,
    data: Manifest,
    metrics: dict[str, Any],
) -> None:
    training = files.read_json(config.paths.training)
    told = card.card(
        description,
        data,
        metrics,
        training,
        train=config.train,
        export=config.export,
    )
    with tempfile.TemporaryDirectory() as assets:
        labels, described = Path(assets) / manifest.LABELS_FILE, Path(assets) / card.FILE
        labels.write_text(manifest.labels_text(description.classes), encoding="utf-8")
        described.write_bytes(files.json_bytes(told))
        servable.save(folder, model, description, (labels, described))
    formats.write(folder, config.export.formats, lambda: _representative(config, description, data))
    others = [(name, f"{formats.EXTRA}/{FORMATS[name].file}") for name in config.export.formats]
    sizes = [(name, file, (folder / file).stat().st_size) for name, file in others]
    (folder / README).write_text(card.markdown(told, sizes), encoding="utf-8")


def _representative(config: Config, description: Description, data: Manifest) -> Iterator[NDArray[np.uint8]]:
    """Training images from all over the split, which may be sorted by class; decoded."""
    split, wanted = data.splits["train"], config.export.representative_examples
    encoded = pipeline.encoded_images(config.paths.records, split.shards)
    spread = encoded.shard(max(1, split.examples // wanted), 0).take(wanted)
    for _, pixels in pipeline.stored_images(spread, description.pixels.channels):
        yield pixels


def _job(config: Config, folder: Path, description: Description) -> Job:
    return Job(
        export=folder,
        records=config.paths.records,
        predictions=config.paths.predictions,
        formats=tuple(config.export.formats),
        devices=config.evaluate.devices,
        channels=description.pixels.channels,
        batch_size=config.evaluate.batch_size,
    )


def _tell(found: Found) -> None:
    log.info(
        "%s: %.2f MB, %.2f ms an image, probabilities at most %.1e from the scored model's, "
        "the same class for %.2f %% of %d test examples",
        found.form, found.bytes / 1e6, found.milliseconds, found.difference,
        100 * found.agreement, found.examples,
    )  # fmt: skip
