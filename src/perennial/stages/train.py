"""Records into a trained model."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from perennial import files, preprocessing
from perennial.config import Config
from perennial.errors import ConfigError, DataError
from perennial.evaluation import inference, scoring
from perennial.evaluation.scoring import Scores
from perennial.models import MODELS, saved
from perennial.preprocessing import Pixels
from perennial.records import manifest, pipeline
from perennial.records.manifest import Manifest
from perennial.runtime import cluster
from perennial.runtime.cluster import Worker
from perennial.training import devices, finished, identity, loop, losses, stopping, warm_start
from perennial.training.agreement import naming_lost
from perennial.training.checkpoints import Checkpoints, steps
from perennial.training.history import History
from perennial.training.input import Batch, Input
from perennial.training.objective import Objective
from perennial.training.plan import Plan
from perennial.training.progress import Progress
from perennial.training.stopping import Length
from perennial.training.stopwatch import Stopwatch
from perennial.training.summaries import Summaries
from perennial.training.trainer import Trainer
from perennial.validation import integrity

log = logging.getLogger(__name__)
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def train(config: Config, *, clean: bool = False) -> None:
    """Trains until the stop rule, judged on validation, or the last step; writes model, curves and record.

    Continues from the newest checkpoint of the same parameters, data and code, unless `clean` removes them.

    Raises:
        DataError: the records are not sound or were not validated; nothing was trained.
        ConfigError: devices, batch, images and weights to start from do not go together.
        PerennialError: a loss, logit or gradient is not finite.
        Interrupted: a signal came, or another worker was lost; what was saved stays.
    """
    watch, worker = Stopwatch(), cluster.this_worker()
    data = integrity.require_valid(config.paths.records, ("train", "validation"))
    pixels = _pixels(config)
    watch.lap("records checked")
    strategy = _set_up_tensorflow(config, worker)
    start, length = warm_start.read(config), _length(config, data)
    description = _description(config, data, pixels)
    folder = _folder(config, description.data, start.sha256, worker, clean=clean)
    weights = start if clean or not steps(folder) else None
    with naming_lost(worker):  # workers wait for each other here, so that none restores what another removes
        trainer = _trainer(config, data, pixels, strategy, length, weights)
    watch.lap("model built")
    source = _input(config, data, pixels)
    watch.lap("images ready")
    logs = config.paths.runs / "tensorboard" / folder.name[:12]
    what = f"{config.model.name}: {trainer.model.count_params()} weights, {source}"
    log.info("training %s, at most %d steps; ready after %s", what, length.steps, watch.laps())
    with (
        Checkpoints(folder, max_to_keep=config.checkpoints.max_to_keep) as checkpoints,
        Progress(length, logs, config.logging) as progress,
    ):
        run = loop.Run(
            config=config,
            trainer=trainer,
            plan=_plan(config, length),
            input=source,
            score=_validation(config, data, pixels, trainer.model),
            folder=folder,
            checkpoints=checkpoints,
            history=History(folder, config.paths.curves, steps=length.steps),
            progress=progress,
            summaries=_summaries(config, data, source, trainer, description, logs),
            worker=worker,
            description=description,
        )
        state = loop.fit(run)
    if run.writes:
        _write(config, run, state, description)
    run.agreement.wait()


def _folder(config: Config, data: str, weights: str | None, worker: Worker | None, *, clean: bool) -> Path:
    """Where the checkpoints of a training on this data, from these weights, lie; removed if asked for."""
    folder = config.paths.work / "train" / identity.digest(config, manifest=data, weights=weights)
    if clean and folder.exists() and (worker is None or worker.is_chief):
        shutil.rmtree(folder)
    return folder


def _length(config: Config, data: Manifest) -> Length:
    return stopping.length(
        examples=data.splits["train"].examples,
        batch_size=config.train.batch_size,
        epochs=config.train.epochs,
        max_steps=config.train.max_steps,
    )


def _description(config: Config, data: Manifest, pixels: Pixels) -> saved.Description:
    """What the model is; the digest of its weights comes when they are known."""
    offset, known = config.model.labels_offset, len(data.classes)
    if known - offset < 2:
        raise ConfigError(f"model.labels_offset must leave two classes or more of {known}, got {offset}")
    return saved.Description(
        name=config.model.name,
        options=config.model,
        classes=data.classes[offset:],
        pixels=pixels,
        data=manifest.digest(config.paths.records),
        weights_sha256="",
    )


def _input(config: Config, data: Manifest, pixels: Pixels) -> Input:
    folder, offset = config.paths.records, config.model.labels_offset
    return Input(folder, data, pixels, config.train, work=config.paths.work, labels_offset=offset)


def _set_up_tensorflow(config: Config, worker: Worker | None) -> tf.distribute.Strategy:
    """Puts all that holds for the whole process in force, before anything uses a device."""
    train = config.train
    if train.deterministic:
        tf.config.experimental.enable_op_determinism()
    return devices.strategy(train, worker)


def _trainer(
    config: Config,
    data: Manifest,
    pixels: Pixels,
    strategy: tf.distribute.Strategy,
    length: Length,
    start: warm_start.Start | None,
) -> Trainer:
    architecture = MODELS[config.model.name]
    per_class = data.splits["train"].per_class[config.model.labels_offset :]

    def build() -> keras.Model:
        # Here, because weights that were read have made a model too, which drew numbers.
        keras.utils.set_random_seed(config.train.seed)
        keras.config.set_dtype_policy(POLICIES[config.train.precision])
        model = architecture.build(pixels.model_shape, len(per_class), config.model)
        keras.config.set_dtype_policy("float32")  # of models that are loaded later in this process
        if start is not None:
            warm_start.begin(model, start, config.train.warm_start)
        return model

    return Trainer(
        architecture,
        build,
        pixels,
        config.train,
        strategy,
        length=length,
        examples=sum(per_class),
        class_weights=losses.class_weights(config.train.class_weights, per_class),
    )


def _plan(config: Config, length: Length) -> Plan:
    train = config.train
    return Plan(
        length=length,
        epochs_between_evals=train.epochs_between_evals,
        steps_between_evals=train.steps_between_evals,
        head_steps=train.head.steps,
        interval_steps=config.checkpoints.interval_steps,
    )


def _validation(config: Config, data: Manifest, pixels: Pixels, model: keras.Model) -> Callable[[], Scores]:
    """The scores of the model, as it then is, on validation."""
    batches = pipeline.batches(
        config.paths.records,
        data,
        "validation",
        pixels,
        batch_size=config.train.batch_size,
        labels_offset=config.model.labels_offset,
        cache_mb=config.train.memory_mb,
    )
    predictor = inference.predictor(model, pixels)
    classes, examples = len(data.classes) - config.model.labels_offset, data.splits["validation"].examples

    def evaluate() -> Scores:
        return scoring.score(inference.logits(predictor, batches), classes=classes, examples=examples)

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
    pixels = preprocessing.fitted(
        config.preprocessing,
        published=MODELS[config.model.name].preprocessing,
        heights=(low, high),
        widths=(left, right),
        channels=channels,
    )
    if config.train.xla and not pixels.compilable:
        raise ConfigError(
            "train.xla cannot compile preprocessing.name rescale where images are resized; "
            "set train.xla: false, image_size: null, or preprocessing.name: standard"
        )
    return pixels


def _summaries(
    config: Config,
    data: Manifest,
    source: Input,
    trainer: Trainer,
    description: saved.Description,
    logs: Path,
) -> Summaries:
    plan = _plan(config, _length(config, data))
    per_class = data.splits["train"].per_class[config.model.labels_offset :]

    def batch_after(step: int) -> Batch:
        with source.naming_shards():
            batch: Batch = next(source.iterator(tf.distribute.OneDeviceStrategy("CPU"), *plan.epoch(step)))
        return batch

    def copied() -> tuple[keras.Model, Objective]:
        model, weights = description.build(), losses.class_weights(config.train.class_weights, per_class)
        return model, Objective(model, MODELS[config.model.name], config.train, weights)

    return Summaries(config, trainer.pixels, batch_after, copied, logs)


def _write(config: Config, run: loop.Run, state: loop.State, description: saved.Description) -> None:
    """Writes the model folder with the run's weights, then the record of the training."""
    model = run.trainer.model
    with run.final_weights():
        digest = saved.weights_sha256(model)
        saved.save(config.paths.model, model, description.model_copy(update={"weights_sha256": digest}))
    last = state.evaluations[-1]
    files.write_json(
        config.paths.training,
        {
            "stopped_by": state.stopped_by,
            "epoch": last.epoch,
            "step": last.step,
            "kept": state.best_step if config.train.keep == "best" else last.step,
            "evaluations": [asdict(evaluation) for evaluation in state.evaluations],
            "weights_sha256": digest,
            "packages": identity.versions(),
        },
    )
    finished.mark(run.folder, started_from=config.train.warm_start.path)
    metric, why = config.train.stop_metric, str(state.stopped_by)
    if why == "threshold":
        why += f" {config.train.stop_threshold}"
    reached = getattr(last, metric)
    log.info("stopped by %s after %d updates, validation %s %.4f", why, last.step, metric, reached)
