"""Records into a trained model."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import keras
import tensorflow as tf

from perennial import files
from perennial.config import Config
from perennial.errors import ConfigError, DataError
from perennial.evaluation import predict, scores
from perennial.evaluation.scores import Scores
from perennial.models import MODELS, saved
from perennial.preprocessing import Pixels
from perennial.records import checks, manifest, read
from perennial.records.manifest import Manifest
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
    started = time.monotonic()
    data = checks.require_sound(config.paths.records, ("train", "validation"))
    pixels = _pixels(config)
    if config.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    # Before anything touches a device: the CPU cannot be split into several once TensorFlow has used it.
    strategy = devices.strategy(config.train.devices, batch_size=config.train.batch_size)
    keras.utils.set_random_seed(config.train.seed)

    def build() -> keras.Model:
        return MODELS[config.model.name].build(pixels.model_shape, len(data.classes))

    trainer = loop.Trainer(build, pixels, config.train, strategy)
    length = stopping.length(
        examples=data.splits["train"].examples,
        batch_size=config.train.batch_size,
        epochs=config.train.epochs,
        max_steps=config.train.max_steps,
    )
    logs = config.paths.runs / "tensorboard" / datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    log.info(
        "training %s: %d weights, %d examples, at most %d steps; ready after %.1f s; TensorBoard logs in %s",
        config.model.name, trainer.model.count_params(), data.splits["train"].examples,
        length.steps, time.monotonic() - started, logs,
    )  # fmt: skip
    epoch_batches, evaluate = _training(config, data, pixels), _validation(config, data, pixels, trainer.model)
    with Progress(length, logs) as progress:
        result = loop.fit(trainer, epoch_batches, evaluate, length, config.train, progress)
    _write(config, data, trainer.model, pixels, result)
    last = result.evaluations[-1]
    log.info(
        "trained in %.1f s: stopped by %s after %d epochs, validation accuracy %.4f",
        time.monotonic() - started, result.stopped_by, last.epoch, last.accuracy,
    )  # fmt: skip


def _training(config: Config, data: Manifest, pixels: Pixels) -> Callable[[int], tf.data.Dataset]:
    """The batches of an epoch, counted from 0."""

    def batches(epoch: int) -> tf.data.Dataset:
        seed = read.epoch_seed(config.train.seed, epoch)
        size = config.train.batch_size
        return read.batches(config.paths.records, data, "train", pixels, batch_size=size, epoch_seed=seed)

    return batches


def _validation(config: Config, data: Manifest, pixels: Pixels, model: keras.Model) -> Callable[[], Scores]:
    """The scores of the model, as it then is, on validation."""
    size, examples = config.evaluate.batch_size, data.splits["validation"].examples
    batches = read.batches(config.paths.records, data, "validation", pixels, batch_size=size)
    predictor = predict.predictor(model, pixels)

    def evaluate() -> Scores:
        logits = predict.logits(predictor, batches)
        return scores.score(logits, classes=len(data.classes), examples=examples)

    return evaluate


def _pixels(config: Config) -> Pixels:
    """What the validation report says of the images, with the preprocessing that was chosen."""
    file = config.paths.validation
    report: dict[str, Any] = files.read_json(file) if file.is_file() else {"ok": False}
    digest = manifest.digest(config.paths.records)
    if not report["ok"] or report["statistics"]["manifest"] != digest:
        raise DataError(
            f"{file} does not say that the records with manifest {digest} are sound; run `dvc repro validate`"
        )
    # Where grey images are among RGB ones, all are decoded as RGB.
    (low, high), (left, right), (_, channels) = (
        report["statistics"][name] for name in ("height", "width", "channels")
    )
    if config.preprocessing.image_size is None and (low != high or left != right):
        raise ConfigError(
            "preprocessing.image_size must be set: "
            f"images are {low} to {high} pixels high and {left} to {right} wide"
        )
    return Pixels(
        preprocessing=config.preprocessing.name,
        height=low if low == high else None,
        width=left if left == right else None,
        channels=channels,
        image_size=config.preprocessing.image_size,
    )


def _write(config: Config, data: Manifest, model: keras.Model, pixels: Pixels, result: loop.Result) -> None:
    """Writes the model folder, then the record of the training."""
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
