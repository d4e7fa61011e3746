"""Train stage: records to a trained model."""

import logging
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras

from perennial.base import files
from perennial.base.config import Config
from perennial.base.devices import cluster
from perennial.base.processes import process
from perennial.data.preprocessing import ImageSpec
from perennial.data.sources import weights
from perennial.data.validation import integrity
from perennial.model.models import model_folder
from perennial.model.training import run_directory, triggers, uploader
from perennial.model.training.assembly import Assembly
from perennial.model.training.checkpoints import Checkpoints
from perennial.model.training.distributed import Peers, lost_worker_errors
from perennial.model.training.loop import Evaluator, Follower, Loop, Saver
from perennial.model.training.training_history import EVALUATIONS, TrainingState
from perennial.model.training.warm_start import StartWeights

log = logging.getLogger(__name__)
Noted = Mapping[str, Any] | None
Followed = Follower | None


def train(
    config: Config, *, clean: bool = False, pinned: bool = True, inputs: Noted = None, follower: Followed = None
) -> None:
    """Train until a stop rule on validation or the last step; write the model, curves and a record.

    Continues from the newest checkpoint with the same run fingerprint, here or at `checkpoints.remote`, unless
    `clean` removes them. Starts from the weights that pins/weights.json names, or, without `pinned`, from where
    the parameters say. The record holds `inputs`, as dvc.lock has them; `follower` gets each evaluation.
    """
    worker = cluster.this_worker()
    data = integrity.require_valid(config.paths.records, ("train", "validation"))
    parts = Assembly(config=config, data=data, worker=worker)
    description = parts.description()
    strategy = parts.strategy()
    peers = Peers(strategy, worker)
    start = parts.start_weights(description, pinned=pinned)
    description = description.model_copy(update={"pretrained": start.pretrained})
    version, teacher, teacher_sha256 = weights.teacher(config) or (None, None, None)
    identity = run_directory.fingerprint(
        config, manifest=description.data, weights=start.sha256, teacher=teacher_sha256
    )
    folder = run_directory.locate(config.paths.work, identity)
    copies = uploader.prepared(config.checkpoints, folder, peers, clean=clean)
    resumes = not clean and run_directory.resumes(folder, identity)
    _log_start(config, start, parts.pixels, resumes=resumes)
    length = triggers.length(config.train, data.splits["train"].examples)
    source = parts.source(teacher, folder)
    with lost_worker_errors(worker):  # no worker may restore a checkpoint that the chief is about to remove
        trainer = parts.trainer(source, strategy, length, None if resumes else start)
    what = f"{config.model.name}: {trainer.model.count_params()} weights, {source}"
    seconds = time.monotonic() - process.STARTED
    log.info("training %s, at most %d steps; ready after %.1f s", what, length.steps, seconds)
    when = triggers.Triggers.configured(config, length, validates=data.validates)
    evaluator = Evaluator(
        trainer, parts.validation(trainer), config.train, length, peers, EVALUATIONS[data.task]
    )
    recorder = parts.recorder(when, source, description, folder) if peers.is_chief else None
    if peers.is_chief:
        run_directory.record(folder, identity, config)
    with copies or nullcontext():
        with Checkpoints(folder, max_to_keep=config.checkpoints.max_to_keep, copies=copies) as kept:
            saver = Saver(kept, trainer, evaluator, description, copies.fetched if copies else None)
            state = Loop(trainer, source, when, evaluator, saver, recorder, peers, follower).run()
        if peers.is_chief:
            noted = {"inputs": inputs, "teacher": version}
            _write(config, trainer.model, evaluator, state, description, folder, noted=noted)
    peers.barrier()


def _log_start(config: Config, start: StartWeights, spec: ImageSpec, *, resumes: bool) -> None:
    """Log that start weights are ignored, or which preprocessing `auto` is for those of TensorFlow 1."""
    if resumes and start.sha256:
        log.info("train.warm_start and model.weights are ignored: this training has a checkpoint")
    elif start.original and config.preprocessing.name == "auto":
        chosen = "preprocessing.name auto is %s for %s; set another if the checkpoint was trained with another"
        log.info(chosen, spec.preprocessing, config.model.name)


def _write(
    config: Config,
    model: keras.Model,
    evaluator: Evaluator,
    state: TrainingState,
    description: model_folder.Description,
    folder: Path,
    *,
    noted: Mapping[str, Any],
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
            **{name: value for name, value in noted.items() if value},
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
