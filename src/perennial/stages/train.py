"""Records into a trained model."""

import logging
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import keras
import tensorflow as tf

from perennial import files
from perennial.config import Config
from perennial.errors import ConfigError, DataError
from perennial.evaluation import predict, scores
from perennial.models import MODELS, saved
from perennial.preprocessing import Pixels
from perennial.records import checks, manifest, read
from perennial.training import devices, loop, stopping
from perennial.training.progress import Progress

log = logging.getLogger(__name__)


def train(config: Config) -> None:
    """Trains until the stop rule, judged on validation, or the last step; writes model and record.

    Raises:
        DataError: the records are not sound or were not validated; nothing was trained.
        ConfigError: devices, batch and images do not go together.
        PerennialError: the loss is not finite.
    """
    started, records = time.monotonic(), config.paths.records
    data = checks.require_sound(records, ("train", "validation"))
    pixels = _pixels(config)
    if config.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = devices.strategy(config.train.devices, batch_size=config.train.batch_size)
    keras.utils.set_random_seed(config.train.seed)
    architecture = MODELS[config.model.name]
    trainer = loop.Trainer(
        lambda: architecture.build(pixels.model_shape, len(data.classes)),
        pixels,
        config.train,
        strategy,
    )
    predictor = predict.predictor(trainer.model, pixels)
    validation = read.batches(records, data, "validation", pixels, batch_size=config.evaluate.batch_size)

    def epoch_batches(epoch: int) -> tf.data.Dataset:
        seed = read.epoch_seed(config.train.seed, epoch)
        return read.batches(records, data, "train", pixels, batch_size=config.train.batch_size, epoch_seed=seed)

    def evaluate() -> scores.Scores:
        return scores.score(
            predict.logits(predictor, validation),
            classes=len(data.classes),
            examples=data.splits["validation"].examples,
        )

    length = stopping.length(
        examples=data.splits["train"].examples,
        batch_size=config.train.batch_size,
        epochs=config.train.epochs,
        max_steps=config.train.max_steps,
    )
    logs = config.paths.runs / "tensorboard" / datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    log.info(
        "training %s: %d examples, %d weights, at most %d steps; ready after %.1f s; TensorBoard logs in %s",
        config.model.name, data.splits["train"].examples, trainer.model.count_params(),
        length.steps, time.monotonic() - started, logs,
    )  # fmt: skip
    with Progress(length, logs) as progress:
        result = loop.fit(trainer, epoch_batches, evaluate, length, config.train, progress)
    _write(config, trainer.model, pixels, result)
    last = result.evaluations[-1]
    log.info(
        "trained in %.1f s: stopped by %s after %d epochs, validation accuracy %.4f",
        time.monotonic() - started, result.stopped_by, last.epoch, last.accuracy,
    )  # fmt: skip


def _pixels(config: Config) -> Pixels:
    """What the validation report says of the images, with the preprocessing that was chosen."""
    file = config.paths.validation
    report: dict[str, Any] = files.read_json(file) if file.is_file() else {"ok": False}
    digest = manifest.digest(config.paths.records)
    if not report["ok"] or report["statistics"]["manifest"] != digest:
        raise DataError(
            f"{file} does not say that the records with manifest {digest} are sound; run `dvc repro validate`"
        )
    (low, high), (left, right), (fewest, most) = (
        report["statistics"][name] for name in ("height", "width", "channels")
    )
    if config.preprocessing.image_size is None and (low != high or left != right):
        raise ConfigError(
            "preprocessing.image_size must be set: "
            f"images are {low} to {high} pixels high and {left} to {right} wide"
        )
    if fewest != most:
        raise DataError(f"images have {fewest} to {most} channels, expected the same of all")
    return Pixels(
        preprocessing=config.preprocessing.name,
        height=low if low == high else None,
        width=left if left == right else None,
        channels=most,
        image_size=config.preprocessing.image_size,
    )


def _write(config: Config, model: keras.Model, pixels: Pixels, result: loop.Result) -> None:
    """Writes the model folder, then the record of the training."""
    data = manifest.load(config.paths.records)
    description = saved.Description(
        name=config.model.name,
        classes=data.classes,
        pixels=pixels,
        data=manifest.digest(config.paths.records),
        weights_sha256=saved.weights_sha256(model),
    )
    saved.save(config.paths.model, model, description)
    last = result.evaluations[-1]
    files.write_json(
        config.paths.training,
        {
            "stopped_by": result.stopped_by,
            "epoch": last.epoch,
            "step": last.step,
            "evaluations": [asdict(evaluation) for evaluation in result.evaluations],
            "weights_sha256": description.weights_sha256,
        },
    )
