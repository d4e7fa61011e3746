"""The scored model as a SavedModel, proven to agree with it before it is put in place."""

import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from perennial import files
from perennial.config import Config
from perennial.errors import QualityError
from perennial.evaluation import predict
from perennial.models import saved, servable
from perennial.preprocessing import Pixels
from perennial.records import checks, manifest, read
from perennial.records.manifest import Manifest

log = logging.getLogger(__name__)
TOLERANCE = 1e-5  # between probabilities of two compilations of the same arithmetic


def export(config: Config) -> None:
    """Writes the SavedModel with labels and model card; the old one stays until the new one has proven itself.

    Raises:
        DataError: the model or the records are not sound.
        QualityError: the model is not the one that was scored, or the export gives other answers.
    """
    started = time.monotonic()
    data = checks.require_sound(config.paths.records, ("test",))
    model, description = saved.load(config.paths.model)
    metrics = files.read_json(config.paths.metrics)
    if metrics["model"] != description.weights_sha256:
        raise QualityError(
            f"{config.paths.metrics} scores the model {metrics['model']}, but {config.paths.model} holds "
            f"{description.weights_sha256}; run `dvc repro evaluate`; the old export was kept"
        )
    with (
        files.new_folder(config.paths.export) as folder,
        tempfile.TemporaryDirectory() as assets,
    ):
        labels, card = Path(assets) / manifest.LABELS_FILE, Path(assets) / "model_card.json"
        labels.write_text(manifest.labels_text(description.classes), encoding="utf-8")
        card.write_bytes(files.json_bytes(_card(description, metrics, data)))
        servable.save(folder, model, description, (labels, card))
        # Inside the block: a difference raises, and the new folder never takes the old one's place.
        examples, difference = _difference(config, data, folder, model, description.pixels)
    log.info(
        "exported to %s in %.1f s; on %d test examples the largest difference of a probability is %.1e",
        config.paths.export, time.monotonic() - started, examples, difference,
    )  # fmt: skip


def _card(description: saved.Description, metrics: dict[str, Any], data: Manifest) -> dict[str, object]:
    """What a reader of the SavedModel should know of it."""
    height, width, channels = description.pixels.raw_shape
    return {
        "architecture": description.name,
        "dataset": data.dataset,
        "data": description.data,
        "classes": description.classes,
        "examples": {split: part.examples for split, part in data.splits.items()},
        "input": {
            "height": height,
            "width": width,
            "channels": channels,
            "range": "raw pixels, 0 to 255; the preprocessing is inside",
        },
        "preprocessing": description.pixels.preprocessing,
        "test": {name: metrics[name] for name in ("accuracy", "loss", "recall_at_5", "examples")},
        "weights_sha256": description.weights_sha256,
    }


def _difference(
    config: Config, data: Manifest, folder: Path, model: keras.Model, pixels: Pixels
) -> tuple[int, float]:
    """How many test examples both signatures were compared on, and their largest difference from the model.

    Raises:
        QualityError: it is larger than the tolerance.
    """
    exported = tf.saved_model.load(str(folder))
    evaluated = predict.predictor(model, pixels)
    shards = [str(config.paths.records / shard.file) for shard in data.splits["test"].shards]
    records = tf.data.TFRecordDataset(shards).take(config.export.parity_examples)
    examples, largest = 0, 0.0
    for batch in records.batch(config.evaluate.batch_size):
        encoded = tf.io.parse_example(batch, read.KEYS)["image/encoded"]
        images = [read.decoded(each, pixels) for each in encoded]
        given = images if pixels.same_size else [pixels.evaluation_one(image) for image in images]
        expected = tf.nn.softmax(evaluated(tf.stack(given))).numpy()
        answers = [exported.signatures[servable.CLASSIFY_BYTES](image=encoded)]
        if None not in pixels.raw_shape:  # images of different sizes make no batch of raw pixels
            answers.append(exported.signatures[servable.CLASSIFY](image=tf.stack(images)))
        for answer in answers:
            largest = max(largest, float(np.abs(answer["probabilities"].numpy() - expected).max()))
        examples += len(expected)
    if not largest <= TOLERANCE:
        raise QualityError(
            f"the export's probabilities differ from the evaluated model's by {largest}, expected at most "
            f"{TOLERANCE}; the old export was kept"
        )
    return examples, largest
