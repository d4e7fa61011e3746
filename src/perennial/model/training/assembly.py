"""The parts of a training, made from its parameters and records."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.config.networks import network_facts
from perennial.base.devices.cluster import Worker
from perennial.base.errors import ConfigError, DataError
from perennial.base.params import advice
from perennial.data import preprocessing
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest, pipeline
from perennial.data.records.manifest import Manifest
from perennial.model import models
from perennial.model.evaluation import inference, scoring
from perennial.model.evaluation.scoring import Scores
from perennial.model.models.model_folder import Description
from perennial.model.training import distributed, frozen_features, losses, teacher, warm_start
from perennial.model.training.input import Batch, Input
from perennial.model.training.loop import Recorder
from perennial.model.training.losses import Objective
from perennial.model.training.progress import FILE, Progress
from perennial.model.training.tensorboard import Profile, Summaries
from perennial.model.training.train_step import Trainer
from perennial.model.training.training_history import EVALUATIONS, History
from perennial.model.training.triggers import Length, Triggers
from perennial.model.training.warm_start import StartWeights

log = logging.getLogger(__name__)
PREPARED_ON = 5000  # training images for `Architecture.prepare`, such as the whitening of fast_cnn
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """Makes the parts of one training, which the stage then puts together."""

    config: Config
    data: Manifest
    worker: Worker | None

    @cached_property
    def pixels(self) -> ImageSpec:
        """The chosen preprocessing for images of the sizes in the validation report."""
        config = self.config
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
        facts = network_facts(config.model.name)
        spec = preprocessing.fitted(
            config.preprocessing,
            published=facts.preprocessing or models.named(config.model.name).preprocessing,
            tensorflow_1=facts.program is not None,
            heights=(low, high),
            widths=(left, right),
            channels=channels,
        )
        height, width, _ = spec.model_shape
        own = facts.image_size
        if own and config.preprocessing.image_size is None and (height, width) != (own, own):
            log.info(
                "%s takes images of %dx%d pixels, their own size (preprocessing.image_size: null); published "
                "for %dx%d (image_size: network)", config.model.name, height, width, own, own,
            )  # fmt: skip
        if config.train.xla and not spec.compilable:
            raise ConfigError(
                "train.xla cannot compile preprocessing.name rescale if images are resized; "
                "set train.xla: false, image_size: null, or preprocessing.name: standard"
            )
        return spec

    @cached_property
    def label_map(self) -> pipeline.LabelMap:
        """Which classes the model has."""
        return pipeline.LabelMap(self.config.model.labels_offset)

    @cached_property
    def per_class(self) -> list[int]:
        """Training examples of each class."""
        return self.label_map.per_class(self.data, "train")

    @property
    def class_weights(self) -> list[float] | None:
        """The factors of the classes in the loss; None: 1."""
        chosen = self.config.train
        if self.data.task == "multilabel":
            examples = self.data.splits["train"].examples
            return losses.positive_weights(chosen.positive_weights, self.per_class, examples)
        return losses.class_weights(chosen.class_weights, self.per_class)

    def strategy(self) -> tf.distribute.Strategy:
        """The devices to train on; called before anything uses one."""
        if self.config.train.deterministic:
            tf.config.experimental.enable_op_determinism()
        tf.debugging.set_log_device_placement(self.config.logging.device_placement)
        return distributed.strategy(self.config.train, self.worker)

    def description(self) -> Description:
        """The description of the model, still without the digest of its weights."""
        self.label_map.require_classes(self.data)
        return Description(
            name=self.config.model.name,
            options=self.config.model.model_copy(update={"weights": None, "weights_url": None}),
            task=self.data.task,
            classes=self.label_map.classes(self.data),
            pixels=self.pixels,
            data=manifest.digest(self.config.paths.records),
            weights_sha256="",
        )

    def start_weights(self, description: Description, *, pinned: bool) -> StartWeights:
        """The weights to start from; without steps they must be of the same classes."""
        start = warm_start.read(self.config, pinned=pinned)
        if self.config.train.max_steps == 0:
            warm_start.refuse_other_classes(start, description)
        return start

    def source(self, export: Path | None, folder: Path) -> Input:
        """The training images in batches, with the answers of a teacher's export; `folder`: of the run."""
        paths, chosen, answers = self.config.paths, self.config.train, None
        if chosen.max_steps == 0:
            chosen = chosen.model_copy(update={"cache": "none"})  # nothing is decoded that no step takes
        elif export:
            answers = teacher.answers(export, paths.records, self.data, self.label_map, folder)
        return Input(paths.records, self.data, self.pixels, chosen, label_map=self.label_map, answers=answers)

    def trainer(
        self, source: Input, strategy: tf.distribute.Strategy, length: Length, start: StartWeights | None
    ) -> Trainer:
        """The model with its optimizer; `start` is None for one that a checkpoint will fill."""
        config, architecture = self.config, models.named(self.config.model.name)

        def build() -> keras.Model:
            # Set the seed here: reading start weights has built a model, too, which drew random numbers.
            keras.utils.set_random_seed(config.train.seed)
            keras.config.set_dtype_policy(POLICIES[config.train.precision])
            model = architecture.build(self.pixels.model_shape, len(self.per_class), config.model)
            keras.config.set_dtype_policy("float32")  # for models that this process loads later
            if start is not None and architecture.prepare is not None:
                architecture.prepare(model, source.sample(PREPARED_ON))
            if start is not None:
                warm_start.begin(model, start, config.train.warm_start, complete=config.train.max_steps == 0)
            return model

        trainer = Trainer(
            architecture,
            build,
            self.pixels,
            config.train,
            strategy,
            length=length,
            examples=self.data.splits["train"].examples,
            class_weights=self.class_weights,
        )
        trainer.keep_features(
            partial(
                frozen_features.choose,
                augmented=config.train.augmentation.distorts,
                examples=sum(self.data.splits[split].examples for split in ("train", "validation")),
                pixels=self.pixels,
                memory_mb=config.train.memory_mb,
                workers=self.worker.count if self.worker else 1,
            )
        )
        return trainer

    def validation(self, trainer: Trainer) -> Callable[[int], Scores] | None:
        """A function that scores the current weights on the validation split; None without such a split."""
        if not self.data.validates:
            return None
        config, data = self.config, self.data
        batches = pipeline.batches(
            config.paths.records,
            data,
            "validation",
            self.pixels,
            batch_size=config.train.batch_size,
            label_map=self.label_map,
            cache_mb=config.train.memory_mb,
        )
        predictor = inference.predictor(trainer.model, self.pixels)
        classes, examples = len(self.label_map.classes(data)), data.splits["validation"].examples

        def score(step: int) -> Scores:
            frozen = trainer.phase(max(step - 1, 0)).frozen
            logits = frozen.logits(batches) if frozen else inference.batch_logits(predictor, batches)
            with pipeline.naming_shards(config.paths.records, data):
                return scoring.score(logits, classes=classes, examples=examples)

        return score

    def recorder(self, when: Triggers, source: Input, description: Description, folder: Path) -> Recorder:
        """What writes curves, progress, summaries and a profile."""
        config = self.config
        logs = config.paths.runs / "tensorboard" / folder.name[:12]

        def batch_after(step: int) -> Batch:
            with source.naming_shards():
                batch: Batch = next(
                    source.iterator(tf.distribute.OneDeviceStrategy("CPU"), *when.position(step))
                )
            return batch

        def copied() -> tuple[keras.Model, Objective]:
            model = description.build()
            return model, Objective(model, models.named(config.model.name), config.train, self.class_weights)

        return Recorder(
            history=History(folder, config.paths.curves, EVALUATIONS[self.data.task], steps=when.length.steps),
            progress=Progress(
                when.length,
                logs,
                config.paths.work / FILE,
                task=self.data.task,
                every_steps=config.logging.every_steps,
            ),
            summaries=Summaries(when, config.train, self.pixels, batch_after, copied, logs),
            profile=Profile(when.profiled, logs / "profile"),
        )
