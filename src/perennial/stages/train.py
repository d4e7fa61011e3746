"""Train stage: records to a trained model."""

import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.config.networks import facts
from perennial.base.distributed import cluster
from perennial.base.distributed.cluster import Worker
from perennial.base.errors import ConfigError, DataError
from perennial.base.params import advice
from perennial.data import preprocessing
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest, pipeline
from perennial.data.records.label_map import LabelMap
from perennial.data.records.manifest import Manifest
from perennial.data.validation import integrity
from perennial.model import models
from perennial.model.evaluation import inference, scoring
from perennial.model.evaluation.scoring import ExampleScores
from perennial.model.models import model_folder
from perennial.model.models.model_folder import Description
from perennial.model.training import distributed, frozen_features, losses, run_directory, triggers, warm_start
from perennial.model.training import uploader as uploads
from perennial.model.training.checkpoints import Checkpoints
from perennial.model.training.distributed import Peers, naming_lost
from perennial.model.training.input import Batch, Input
from perennial.model.training.loop import Evaluator, Follower, Loop, Recorder, Saver
from perennial.model.training.losses import Objective
from perennial.model.training.progress import FILE, Progress, Stopwatch
from perennial.model.training.tensorboard import Profile, Summaries
from perennial.model.training.train_step import Trainer
from perennial.model.training.training_history import History, TrainingState
from perennial.model.training.triggers import Length, Triggers
from perennial.model.training.uploader import Uploader
from perennial.model.training.warm_start import StartWeights

log = logging.getLogger(__name__)
PREPARED_ON = 5000  # training images for `Architecture.prepare`, such as the whitening of fast_cnn
Noted = Mapping[str, Any] | None
Followed = Follower | None
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def train(
    config: Config, *, clean: bool = False, pinned: bool = True, inputs: Noted = None, follower: Followed = None
) -> None:
    """Train until a stop rule on validation or the last step; write the model, curves and a record.

    Continues from the newest checkpoint with the same run fingerprint, here or at `checkpoints.remote`, unless
    `clean` removes them. Starts from the weights that pins/weights.json names, or, without `pinned`, from where
    the parameters say. The record holds `inputs`, as dvc.lock has them; `follower` gets each evaluation.
    """
    stopwatch, worker = Stopwatch(), cluster.this_worker()
    data = integrity.require_valid(config.paths.records, ("train", "validation"))
    spec = _image_spec(config)
    description = _description(config, data, spec)
    stopwatch.part("records checked")
    strategy = _strategy(config, worker)
    peers = Peers(strategy, worker)
    start = _start_weights(config, description, pinned=pinned)
    description = description.model_copy(update={"pretrained": start.pretrained})
    parts = run_directory.fingerprint(config, manifest=description.data, weights=start.sha256)
    folder = run_directory.locate(config.paths.work, parts)
    uploader = _uploader(config, folder, peers, clean=clean)
    resumes = not clean and run_directory.resumes(folder, parts)
    _log_start(config, start, spec, resumes=resumes)
    length = triggers.length(config.train, data.splits["train"].examples)
    source = _input(config, data, spec)
    stopwatch.part("images ready")
    with naming_lost(worker):  # no worker may restore a checkpoint that the chief is about to remove
        trainer = _trainer(config, data, source, strategy, length, None if resumes else start)
    stopwatch.part("model built")
    what = f"{config.model.name}: {trainer.model.count_params()} weights, {source}"
    log.info("training %s, at most %d steps; ready after %s", what, length.steps, stopwatch)
    when = Triggers.configured(config, length, validates=data.validates)
    evaluator = Evaluator(trainer, _validation(config, data, spec, trainer), config.train, length, peers)
    recorder = _recorder(config, data, when, source, description, folder) if peers.is_chief else None
    if peers.is_chief:
        run_directory.record(folder, parts, config)
    with uploader or nullcontext():
        with Checkpoints(folder, max_to_keep=config.checkpoints.max_to_keep, copies=uploader) as kept:
            saver = Saver(kept, trainer, evaluator, description, uploader.fetched if uploader else None)
            state = Loop(trainer, source, when, evaluator, saver, recorder, peers, follower).run()
        if peers.is_chief:
            _write(config, trainer.model, evaluator, state, description, folder, inputs=inputs)
    peers.barrier()


def _start_weights(config: Config, description: Description, *, pinned: bool) -> StartWeights:
    start = warm_start.read(config, pinned=pinned)
    if config.train.max_steps == 0:
        warm_start.refuse_other_classes(start, description)
    return start


def _strategy(config: Config, worker: Worker | None) -> tf.distribute.Strategy:
    if config.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    tf.debugging.set_log_device_placement(config.logging.device_placement)
    return distributed.strategy(config.train, worker)


def _log_start(config: Config, start: StartWeights, spec: ImageSpec, *, resumes: bool) -> None:
    """Log that start weights are ignored, or which preprocessing `auto` is for those of TensorFlow 1."""
    if resumes and start.sha256:
        log.info("train.warm_start and model.weights are ignored: this training has a checkpoint")
    elif start.original and config.preprocessing.name == "auto":
        chosen = "preprocessing.name auto is %s for %s; set another if the checkpoint was trained with another"
        log.info(chosen, spec.preprocessing, config.model.name)


def _input(config: Config, data: Manifest, spec: ImageSpec) -> Input:
    folders, label_map, chosen = config.paths, LabelMap.of(config.model), config.train
    if chosen.max_steps == 0:
        chosen = chosen.model_copy(update={"cache": "none"})  # nothing is decoded that no step takes
    return Input(folders.records, data, spec, chosen, work=folders.work, label_map=label_map)


def _uploader(config: Config, folder: Path, peers: Peers, *, clean: bool) -> Uploader | None:
    """The uploader of checkpoints to `checkpoints.remote`; only the chief has one.

    Before it starts, a newer checkpoint is fetched from there; with `clean`, this training is removed there and
    here.
    """
    if clean and peers.is_chief and folder.exists():
        shutil.rmtree(folder)
    uploader = uploads.configured(config.checkpoints, folder) if peers.is_chief else None
    if uploader:
        uploader.prepare(clean=clean)
    if config.checkpoints.remote:
        peers.barrier()  # all resume from what the chief fetched
    return uploader


def _image_spec(config: Config) -> ImageSpec:
    """The chosen preprocessing for images of the sizes in the validation report."""
    file = config.paths.validation
    report: dict[str, Any] = documents.read_json(file) if file.is_file() else {"ok": False}
    digest = manifest.digest(config.paths.records)
    advice.log(log, advice.of_training(config))  # advice comes before any error
    if not report["ok"] or report["statistics"]["manifest"] != digest:
        raise DataError(
            f"{file} does not report the records with manifest {digest} as valid; run `dvc repro validate`"
        )
    # If some images are gray and others RGB, all are decoded as RGB.
    (low, high), (left, right), (_, channels) = (
        report["statistics"][name] for name in ("height", "width", "channels")
    )
    spec = preprocessing.fitted(
        config.preprocessing,
        published=models.named(config.model.name).preprocessing,
        tensorflow_1=facts(config.model.name).program is not None,
        heights=(low, high),
        widths=(left, right),
        channels=channels,
    )
    _log_input_size(config, spec)
    if config.train.xla and not spec.compilable:
        raise ConfigError(
            "train.xla cannot compile preprocessing.name rescale if images are resized; "
            "set train.xla: false, image_size: null, or preprocessing.name: standard"
        )
    return spec


def _log_input_size(config: Config, spec: ImageSpec) -> None:
    """Log the input size if the images have another size than the network was published for."""
    own, (height, width, _) = facts(config.model.name).image_size, spec.model_shape
    if own and config.preprocessing.image_size is None and (height, width) != (own, own):
        log.info(
            "%s takes images of %dx%d pixels, their own size (preprocessing.image_size: null); published "
            "for %dx%d (image_size: network)", config.model.name, height, width, own, own,
        )  # fmt: skip


def _description(config: Config, data: Manifest, spec: ImageSpec) -> Description:
    """The description of the model, still without the digest of its weights."""
    label_map = LabelMap.of(config.model)
    label_map.require_classes(data)
    return Description(
        name=config.model.name,
        options=config.model.model_copy(update={"weights": None, "weights_url": None}),  # of building it
        classes=label_map.classes(data),
        pixels=spec,
        data=manifest.digest(config.paths.records),
        weights_sha256="",
    )


def _trainer(
    config: Config,
    data: Manifest,
    source: Input,
    strategy: tf.distribute.Strategy,
    length: Length,
    start: StartWeights | None,
) -> Trainer:
    architecture = models.named(config.model.name)
    per_class = LabelMap.of(config.model).per_class(data, "train")
    spec, prepare = source.pixels, architecture.prepare

    def build() -> keras.Model:
        # Set the seed here: reading start weights has built a model, too, which drew random numbers.
        keras.utils.set_random_seed(config.train.seed)
        keras.config.set_dtype_policy(POLICIES[config.train.precision])
        model = architecture.build(spec.model_shape, len(per_class), config.model)
        keras.config.set_dtype_policy("float32")  # for models that this process loads later
        if start is not None and prepare is not None:
            prepare(model, source.sample(PREPARED_ON))
        if start is not None:
            warm_start.begin(model, start, config.train.warm_start, complete=config.train.max_steps == 0)
        return model

    trainer = Trainer(
        architecture,
        build,
        spec,
        config.train,
        strategy,
        length=length,
        examples=sum(per_class),
        class_weights=losses.class_weights(config.train.class_weights, per_class),
    )
    kept = sum(data.splits[split].examples for split in ("train", "validation"))
    memory_mb, worker = config.train.memory_mb, cluster.this_worker()
    workers = worker.count if worker else 1
    choose = partial(frozen_features.choose, augmented=config.train.augmentation.distorts, examples=kept)
    trainer.keep_features(partial(choose, pixels=spec, memory_mb=memory_mb, workers=workers))
    return trainer


def _validation(
    config: Config, data: Manifest, spec: ImageSpec, trainer: Trainer
) -> Callable[[int], ExampleScores] | None:
    """A function that scores the current weights on the validation split; None without such a split."""
    if not data.validates:
        return None
    label_map = LabelMap.of(config.model)
    batches = pipeline.batches(
        config.paths.records,
        data,
        "validation",
        spec,
        batch_size=config.train.batch_size,
        label_map=label_map,
        cache_mb=config.train.memory_mb,
    )
    predictor = inference.predictor(trainer.model, spec)
    classes, examples = len(label_map.classes(data)), data.splits["validation"].examples

    def score(step: int) -> ExampleScores:
        frozen = trainer.phase(max(step - 1, 0)).frozen
        logits = frozen.logits(batches) if frozen else inference.logits(predictor, batches)
        with pipeline.naming_shards(config.paths.records, data):
            return scoring.score(logits, classes=classes, examples=examples)

    return score


def _recorder(
    config: Config, data: Manifest, when: Triggers, source: Input, description: Description, folder: Path
) -> Recorder:
    logs = config.paths.runs / "tensorboard" / folder.name[:12]

    def batch_after(step: int) -> Batch:
        with source.naming_shards():
            batch: Batch = next(source.iterator(tf.distribute.OneDeviceStrategy("CPU"), *when.position(step)))
        return batch

    def copied() -> tuple[keras.Model, Objective]:
        weights = losses.class_weights(
            config.train.class_weights, LabelMap.of(config.model).per_class(data, "train")
        )
        model = description.build()
        return model, Objective(model, models.named(config.model.name), config.train, weights)

    return Recorder(
        history=History(folder, config.paths.curves, steps=when.length.steps),
        progress=Progress(when.length, logs, config.paths.work / FILE, every_steps=config.logging.every_steps),
        summaries=Summaries(when, config.train, description.pixels, batch_after, copied, logs),
        profile=Profile(when.profiled, logs / "profile"),
    )


def _write(
    config: Config,
    model: keras.Model,
    evaluator: Evaluator,
    state: TrainingState,
    description: Description,
    folder: Path,
    *,
    inputs: Mapping[str, Any] | None,
) -> None:
    """Write the model folder with the final weights, then the record of the training."""
    with evaluator.final_weights():
        digest = model_folder.weights_sha256(model)
        model_folder.save(config.paths.model, model, description.model_copy(update={"weights_sha256": digest}))
    files.write_json(
        config.paths.training,
        {
            "stopped_by": state.stopped_by,
            "epoch": evaluator.epoch(state),
            "step": state.step,
            "kept": state.best_step if config.train.keep == "best" else state.step,
            "evaluations": [asdict(evaluation) for evaluation in state.evaluations],
            "weights_sha256": digest,
            **({"inputs": inputs} if inputs else {}),
            **({"resumed": resumed} if (resumed := run_directory.resumptions(folder)) else {}),
        },
    )
    run_directory.finish(folder, weights_sha256=digest, started_from=config.train.warm_start.path)
    metric, why = config.train.stop_metric, str(state.stopped_by)
    if why == "threshold":
        why += f" {config.train.stop_threshold}"
    if state.evaluations:
        found = f"validation {metric} {getattr(state.evaluations[-1], metric):.4f}"
    else:
        found = "without a validation split: the model has the last weights"
    log.info("stopped by %s after %d steps, %s", why, state.step, found)
