"""Export stage: convert the evaluated model.

All formats must reproduce its predictions before any is replaced.
"""

import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from perennial.base import documents, files
from perennial.base.choices import SPLITS
from perennial.base.config import Config
from perennial.base.devices import devices, lease
from perennial.base.errors import DataError, QualityError
from perennial.base.stage_state import outputs
from perennial.data.records import manifest, pipeline
from perennial.data.records.manifest import Manifest
from perennial.data.validation import integrity
from perennial.model import export_layout
from perennial.model.evaluation import predictions
from perennial.model.evaluation.results import Metrics, TrainingRecord
from perennial.model.export import export_formats, features, model_card, parity, parity_process, saved_model
from perennial.model.export.encodings import Takes
from perennial.model.export.reference import Reference, limits
from perennial.model.models import model_folder
from perennial.model.models.model_folder import Abstention, Confidence, Description

log = logging.getLogger(__name__)
LOG = "parity.log"  # of the process that compares predictions
KEPT = "the old export was kept"


def before_devices(work: Path) -> None:
    """Fork the process that compares predictions, before TensorFlow looks for devices or does anything else."""
    parity_process.fork(work / LOG)


def export(config: Config) -> None:
    """Write the SavedModel with labels and model card, and the other formats of export.formats.

    The old export stays until a separate process confirms that the new one gives the scored predictions.
    """
    started = time.monotonic()
    devices.select(config.evaluate.devices, key="evaluate.devices")
    devices.configure("cpu", [0])  # the GPU's memory is for the process that compares
    model, trained = model_folder.load(config.paths.model)
    description = trained.model_copy(update={"mirror": config.export.mirror})
    export_formats.require(config.export.formats, description.pixels)
    needs_train = "tflite_int8" in config.export.formats  # measures activations on training images
    splits = SPLITS if needs_train else tuple(split for split in SPLITS if split != "train")
    data = integrity.require_valid(config.paths.records, splits)
    card, description = _card(config, description, data)
    with (
        parity_process.started(config.paths.work / LOG) as compare,
        outputs.new_folder(config.paths.export, "export") as folder,
    ):
        _write(config, folder, model, description, data, card)
        # Inside the block: a difference raises, and the new folder never replaces the old one.
        with lease.leased(
            config.evaluate.devices, config.compute.gpus, key="evaluate.devices", name="export", one=True
        ) as taken:
            job = parity.Job(
                export=folder,
                records=config.paths.records,
                predictions=config.paths.predictions,
                formats=tuple(config.export.formats),
                devices=taken.devices,
                channels=description.pixels.channels,
                batch_size=config.evaluate.batch_size,
            )
            reports = parity.compare_apart(job, compare)
        files.write_json(folder / export_layout.DIGESTS, files.digests(folder))
    for report in reports:
        _log(report, several=description.task == "multilabel")
    log.info("exported to %s in %.1f s", config.paths.export, time.monotonic() - started)


def _card(config: Config, description: Description, data: Manifest) -> tuple[dict[str, Any], Description]:
    """The fields of the model card, and the description with the confidence that evaluate fitted."""
    metrics, training = _metrics(config, description), _training(config, description)
    _require_scored(config, description, metrics)
    card = model_card.model_card(
        description, data, metrics, training, train=config.train, export=config.export, dataset=config.dataset
    )
    given = metrics.thresholds
    thresholds = None if given is None else [given[name] for name in description.classes]
    found = Confidence(temperature=metrics.calibration.temperature, thresholds=thresholds)
    if (abstention := metrics.abstention) is not None:
        chosen = Abstention(max_error=abstention.max_error, threshold=abstention.threshold)
        found = found.model_copy(update={"abstention": chosen})
    return card, description.model_copy(update={"confidence": found})


def _metrics(config: Config, description: Description) -> Metrics:
    """Read the metrics, which must have a value for every class of the model."""
    file, advice = config.paths.metrics, f"`dvc repro evaluate` makes or restores it; {KEPT}"
    metrics = documents.read_checked(file, Metrics, advice)
    several = description.task == "multilabel"
    names = ("map_macro" if several else "accuracy", "loss") if metrics.intervals else ()
    missing = [f"intervals.{name}" for name in names if name not in metrics.intervals]
    missing += [f"per_class.{name}" for name in description.classes if name not in metrics.per_class]
    thresholds = metrics.thresholds or {}
    missing += [f"thresholds.{name}" for name in description.classes if several and name not in thresholds]
    if missing:
        raise DataError(f"{file} has no {missing[0]}; {advice}")
    return metrics


def _training(config: Config, description: Description) -> TrainingRecord:
    file = config.paths.training
    training = documents.read_checked(file, TrainingRecord, f"`dvc repro train` makes or restores it; {KEPT}")
    if training.weights_sha256 != description.weights_sha256:
        raise QualityError(
            f"{file} belongs to the model {training.weights_sha256}, but {config.paths.model} holds "
            f"{description.weights_sha256}; run `dvc repro train`; {KEPT}"
        )
    return training


def _require_scored(config: Config, description: Description, metrics: Metrics) -> None:
    """Check that metrics and predictions belong to this model and these records."""
    paths = config.paths
    with predictions.arrays(paths.predictions) as found:  # without the probabilities, which may be large
        scored = {kind: str(found[kind]) for kind in ("model", "data")}
    expected = {
        "model": (description.weights_sha256, paths.model),
        "data": (manifest.digest(paths.records), paths.records),
    }
    for file, digests in (
        (paths.metrics, {"model": metrics.model, "data": metrics.data}),
        (paths.predictions, scored),
    ):
        for kind, (digest, place) in expected.items():
            if digests[kind] != digest:
                raise QualityError(
                    f"{file} belongs to the {kind} {digests[kind]}, but {place} holds {digest}; run `dvc repro "
                    f"evaluate`; {KEPT}"
                )


def _write(
    config: Config,
    folder: Path,
    model: keras.Model,
    description: Description,
    data: Manifest,
    card: dict[str, Any],
) -> None:
    with tempfile.TemporaryDirectory() as assets:
        labels_file, card_file = (
            Path(assets, file.name) for file in (export_layout.LABELS, export_layout.CARD)
        )
        labels_file.write_text(manifest.labels_text(description.classes), encoding="utf-8")
        card_file.write_bytes(files.json_bytes(card))
        reference = _reference(config, model, description, data)
        bandwidth = None if isinstance(reference, str) else reference.bandwidth
        saved_model.save(
            folder, model, description, (labels_file, card_file), bandwidth, Takes.of(config.dataset)
        )
    missing = {"missing": reference} if isinstance(reference, str) else reference.model_dump(mode="json")
    files.write_json(folder / export_layout.REFERENCE, missing)
    export_formats.write(folder, config.export.formats, lambda: _representative(config, description, data))
    listed = []
    for name in config.export.formats:
        chosen = export_formats.format_named(name)
        file = export_layout.EXTRA / chosen.file
        listed.append((name, file.as_posix(), chosen.takes, (folder / file).stat().st_size))
    (folder / export_layout.README).write_text(model_card.markdown(card, listed), encoding="utf-8")


def _reference(config: Config, model: keras.Model, description: Description, data: Manifest) -> Reference | str:
    started = time.monotonic()
    found = features.measure(model, description, config.paths.records, data, config.export.reference_examples)
    if isinstance(found, str):
        log.info("no reference for drift: %s", found)
    else:
        log.info("measured %d validation images for drift in %.1f s", found.images, time.monotonic() - started)
        if few := limits(found.images, len(found.classes)):
            log.info("%s", few)
    return found


def _representative(config: Config, description: Description, data: Manifest) -> Iterator[NDArray[np.uint8]]:
    """Decoded training images, spread evenly over the split because it may be sorted by class."""
    split = data.splits["train"]
    encoded = pipeline.encoded_images(config.paths.records, split.shards)
    spread = pipeline.spread(encoded, split.examples, config.export.representative_examples)
    with pipeline.naming_shards(config.paths.records, data):
        for _, pixels in pipeline.stored_images(spread, description.pixels.channels):
            yield pixels


def _log(report: parity.FormatReport, *, several: bool) -> None:
    log.info(
        "%s: %.2f MB, %.2f ms an image, probabilities at most %.1e from the scored model's, "
        "%.2f %% of %s the same on %d test examples",
        report.format, report.bytes / 1e6, report.milliseconds, report.difference,
        100 * report.agreement, "the labels" if several else "the classes", report.examples,
    )  # fmt: skip
