# Origin: research/slim/train_image_classifier.py of github.com/tensorflow/models (Apache-2.0):
# defaults of the optimizers.
"""Sections of params.yaml about training: optimizers, schedules, checkpoints and logs."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from perennial.base import choices
from perennial.base.config.fields import (
    Count,
    CountOrZero,
    Devices,
    Positive,
    Section,
    Seed,
    kind,
    option,
    or_component,
    shown,
)

# Names are those of Keras. Where TF-Slim has the optimizer, formula and defaults are those of TensorFlow 1 and
# TF-Slim.
Decay = Annotated[float, Field(ge=0, lt=1)]
LossScale = Literal["dynamic"] | Positive
EPSILON = "added to the denominator against division by zero"
ACCUMULATOR = "initial value of the sums of squares"
KEPT = "fraction of the previous step that is kept"
MEAN_OF_SQUARES = "decay of the mean of squared gradients"


class Adadelta(Section):
    """Adadelta (Zeiler 2012)."""

    rho: Decay = option(0.95, "decay of both running means")
    epsilon: Positive = option(1e-07, EPSILON)


class Adagrad(Section):
    """Adagrad (Duchi et al. 2011)."""

    initial_accumulator_value: float = option(0.1, ACCUMULATOR, ge=0)
    epsilon: Positive = option(1e-07, EPSILON)


class Adam(Section):
    """Adam (Kingma and Ba 2014)."""

    beta_1: Decay = option(0.9, "decay of the mean of gradients")
    beta_2: Decay = option(0.999, MEAN_OF_SQUARES)
    epsilon: Positive = option(1e-07, EPSILON)
    amsgrad: bool = option(False, "use the largest second moment so far (Reddi et al. 2018)")


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    weight_decay: float = option(0.004, "fraction of a weight that a step subtracts, times the rate", ge=0)


class Ftrl(Section):
    """FTRL-Proximal (McMahan et al. 2013)."""

    learning_rate_power: float = option(-0.5, "power of the sum of squares in the step size", le=0)
    initial_accumulator_value: float = option(0.1, ACCUMULATOR, ge=0)
    l1: float = option(0.0, "strength of the L1 penalty", ge=0)
    l2: float = option(0.0, "strength of the L2 penalty", ge=0)


class Momentum(Section):
    """Gradient descent with momentum (Polyak 1964)."""

    momentum: Decay = option(0.9, KEPT)
    nesterov: bool = option(False, "take the gradient after the momentum step (Nesterov 1983)")
    accumulate: Literal["gradients", "steps"] = option(
        "gradients", "gradients: as TensorFlow 1; steps: as Keras"
    )


class RmsProp(Section):
    """RMSProp (Tieleman and Hinton 2012)."""

    rho: Decay = option(0.9, MEAN_OF_SQUARES)
    momentum: Decay = option(0.9, KEPT)
    epsilon: Positive = option(1.0, EPSILON)
    centered: bool = option(False, "divide by the variance, not by the second moment (Graves 2013)")
    initial_accumulator_value: float = option(1.0, "of the mean of squared gradients; Keras: 0", ge=0)


class Sgd(Section):
    """Gradient descent, which has no settings."""


OPTIMIZERS: Mapping[str, type[Section]] = {
    "adadelta": Adadelta, "adagrad": Adagrad, "adam": Adam, "adamw": AdamW, "ftrl": Ftrl, "momentum": Momentum,
    "rmsprop": RmsProp, "sgd": Sgd,
}  # fmt: skip


class ScheduleConfig(Section):
    """The learning rate over the steps."""

    name: Annotated[choices.Schedule | str, or_component(choices.Schedule)] = option(
        "fixed", "or components.MODULE:NAME"
    )
    warmup_steps: CountOrZero = option(0, "steps over which the rate first rises linearly from 0")
    decay_steps: Count | None = option(None, "steps of one decay, or of all; null: by epochs_per_decay")
    epochs_per_decay: Positive | None = option(None, "decay_steps in epochs; null: the whole training")
    decay_factor: Positive = option(0.94, "exponential: factor of one decay")
    staircase: bool = option(True, "exponential: decay in jumps, not continuously")
    end_learning_rate: float = option(0.0001, "polynomial, cosine: last learning rate", ge=0)
    power: Positive = option(1.0, "polynomial: exponent; 1 is a straight line")
    boundaries: list[Count] = option([], "piecewise: steps after which the rate changes")
    values: list[Positive] = option([], "piecewise: factor of the learning rate after each boundary")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name == "exponential" and self.decay_steps is None and self.epochs_per_decay is None:
            raise ValueError(
                "train.schedule.decay_steps or train.schedule.epochs_per_decay must be set for exponential"
            )
        if self.boundaries != sorted(set(self.boundaries)) or len(self.boundaries) != len(self.values):
            raise ValueError(
                "train.schedule.boundaries must increase and be as many as train.schedule.values, "
                f"got {shown(self.boundaries)} and {shown(self.values)}"
            )
        return self


class AugmentationConfig(Section):
    """Further distortions."""

    alternating_flip: bool = option(False, "mirror one half in odd epochs, the other in even ones")
    erasing: float = option(0.0, "random erasing: share of the images with a rectangle erased", ge=0, le=1)
    mixup: Positive | None = option(None, "MixUp: alpha, such as 0.2; null: none; with cutmix, each for half")
    cutmix: Positive | None = option(None, "CutMix: alpha of its Beta distribution, such as 1.0; null: none")

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with others."""
        return self.mixup is not None or self.cutmix is not None

    @property
    def distorts(self) -> bool:
        """Whether it changes any image."""
        return bool(self.alternating_flip or self.erasing or self.mixes)


class AveragesConfig(Section):
    """Moving averages of the weights, which evaluate and export then use."""

    decay: float | None = option(None, "decay, such as 0.9999; null: no averages", gt=0, lt=1)
    dynamic: bool = option(True, "limit the decay to (1 + step) / (10 + step), so that early weights fade")


class HeadConfig(Section):
    """A first phase that trains only the last layers."""

    steps: CountOrZero = option(0, "steps of this phase, included in max_steps; 0: no such phase")
    learning_rate: Positive = option(0.01, "learning rate of this phase, constant")


class WarmStartConfig(Section):
    """Initial weights from another model; a training run that has a checkpoint resumes from it instead."""

    path: str | None = option(None, "model, checkpoints, export, or one of TensorFlow 1; null: random weights")
    averages: Literal["auto", "averages", "weights"] = option(
        "auto", "averages in a checkpoint; auto: if it has them; averages: required; weights: no"
    )
    exclude: list[str] = option([], "patterns of layers that start from random weights, such as logits*")
    ignore_missing: bool = option(False, "allow the other model to lack layers of this one")


class TrainConfig(Section):
    """The training."""

    epochs: Count | None = option(30, "passes over the training split; null: max_steps decides")
    max_steps: CountOrZero | None = option(None, "training steps; 0: only warm_start; null: epochs decides")
    batch_size: int = option(64, "examples per step, over all devices together", ge=1, le=2**20)
    epochs_between_evals: Count = option(2, "epochs between two evaluations")
    stop_threshold: Positive | None = option(0.99, "stop_metric at which training ends; null: never")
    patience: Count | None = option(None, "evaluations without a better stop_metric; null: no limit")
    keep: Literal["last", "best"] = option("last", "which evaluated weights become the model")
    optimizer: Annotated[choices.Optimizer | str, or_component(choices.Optimizer)] = option(
        "adam", "or components.MODULE:NAME"
    )
    optimizer_options: Annotated[dict[str, bool | int | float | str], kind("its settings")] = option(
        {}, "settings of the optimizer, such as {momentum: 0.8}; others have their defaults"
    )
    learning_rate: Positive = option(0.001, "learning rate before any decay")
    devices: Devices = option("auto", "auto, cpu:N, gpu:N (any N) or gpu:0,2 (these)")
    steps_between_evals: Count | None = option(None, "steps between two; null: epochs_between_evals decides")
    stop_metric: Literal["accuracy", "loss", "recall_at_5", "map"] = option(
        "accuracy", "validation score that stops, and is kept"
    )
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    weight_decay: float | None = option(None, "factor of the L2 penalty; null: the network's own", ge=0)
    label_smoothing: float = option(
        0.0, "fraction of each label that is spread over all classes; multilabel: to 0.5", ge=0, lt=1
    )
    class_weights: Literal["balanced"] | list[Positive] | None = option(
        None, "factor of an example's loss: balanced, one number per class, or null (1)"
    )
    positive_weights: Literal["balanced"] | list[Positive] | None = option(
        None, "multilabel: factor of the loss of labels that are there, as class_weights"
    )
    aux_loss_weight: float = option(0.4, "factor of an auxiliary classifier's loss", ge=0)
    clip_norm: Positive | None = option(None, "clip gradients to this global norm; null: no clipping")
    averages: AveragesConfig = Field(default_factory=AveragesConfig)
    augmentation: AugmentationConfig = Field(default_factory=AugmentationConfig)
    trainable: list[str] = option([], "patterns of layers to train, such as logits*; empty: all")
    rates: Annotated[dict[str, Positive], kind("factors by patterns of layers")] = option(
        {}, "factors of the learning rate, such as {block1*: 0.1}; of several patterns, the first counts"
    )
    layer_decay: float | None = option(
        None, "factor of the rate from each twelfth of the layers to that below, such as 0.75", gt=0, le=1
    )
    head: HeadConfig = Field(default_factory=HeadConfig)
    warm_start: WarmStartConfig = Field(default_factory=WarmStartConfig)
    teacher: str | None = option(None, "version whose answers it keeps to: champion, or v0.0.3; null: none")
    teacher_weight: float = option(0.5, "share of the loss that is the distance from its answers", gt=0, le=1)
    teacher_temperature: Positive = option(2.0, "by which the logits of both are divided for that distance")
    teacher_focus: float = option(
        0.0, "examples that the teacher gets right weigh 1 + this times as much", ge=0
    )
    batch_norm: Literal["per_replica", "synced"] = option(
        "per_replica", "over each device's part of the batch, or over all of it"
    )
    precision: Literal["float32", "bfloat16", "float16"] = option("float32", "of the computation, not weights")
    loss_scale: LossScale = option("dynamic", "float16: dynamic, or a fixed number")
    xla: bool = option(False, "compile the step with XLA; needs deterministic: false")
    deterministic: bool = option(True, "repeat a run bit by bit: equal runs give equal weights")
    seed: Seed = option(0, "seed of initial weights, order of examples, distortions and dropout")
    all_reduce: Literal["auto", "nccl", "hierarchical_copy", "reduce_to_one", "ring"] = option(
        "auto", "how devices sum gradients"
    )
    intra_op_threads: int = option(0, "threads inside one operation; 0: one per core", ge=0, le=4096)
    inter_op_threads: int = option(0, "operations in parallel; 0: one per core", ge=0, le=4096)
    cache: Literal["auto", "memory", "none"] = option(
        "auto", "where decoded images are kept; auto: memory if they fit memory_mb"
    )
    memory_mb: Count = option(
        1024, "memory for images, in MB; larger splits are shuffled in parts of this size"
    )
    synthetic_data: bool = option(False, "train on random images instead of the records, to measure speed")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.epochs is None) == (self.max_steps is None):
            got = f"{shown(self.epochs)} and {shown(self.max_steps)}"
            raise ValueError(f"train.epochs and train.max_steps: set exactly one, got {got}")
        if self.stop_metric != "loss" and self.stop_threshold is not None and self.stop_threshold > 1:
            got = f"{shown(self.stop_threshold)} (a fraction, not a percentage)"
            raise ValueError(f"train.stop_threshold must be in (0, 1], got {got}")
        if self.teacher and self.synthetic_data:
            raise ValueError(
                "train.teacher answers real images: set train.synthetic_data: false, or no teacher"
            )
        if self.xla and self.deterministic:
            raise ValueError(
                "train.xla needs train.deterministic: false: some gradients differ between runs under XLA"
            )
        return self

    @model_validator(mode="after")
    def _options_are_of_the_optimizer(self) -> Self:
        fields = OPTIMIZERS.get(self.optimizer, Sgd).model_fields
        known = ", ".join(f"{name}: {str(field.default).lower()}" for name, field in fields.items())
        try:
            _ = self.optimizer_settings
        except ValidationError as error:
            first = error.errors()[0]
            rule = first["msg"].replace("Input should", "must").replace("Extra inputs", "unknown keys")
            raise ValueError(
                f"train.optimizer_options.{first['loc'][0]}: {rule}, got {shown(first['input'])}; "
                f"{self.optimizer} has {known or 'no settings'}"
            ) from None
        return self

    @property
    def optimizer_settings(self) -> dict[str, Any]:
        """All settings of the optimizer, those with their defaults, too."""
        section = OPTIMIZERS.get(self.optimizer, Sgd)
        return section.model_validate(self.optimizer_options).model_dump()


class CheckpointsConfig(Section):
    """When a training run saves a checkpoint, and where copies go; does not change results."""

    interval_s: float | None = option(60.0, "seconds between two checkpoints; null: not by time", gt=0, le=1e9)
    interval_steps: Count | None = option(None, "steps between two checkpoints; null: not by steps")
    max_to_keep: Count = option(5, "checkpoints to keep; the last two always stay")
    remote: str | None = option(None, "folder or s3:// URL for copies, from which others resume; null: none")
    remote_interval_s: float = option(60.0, "minimum seconds between two copies to remote", ge=0, le=1e9)
    dvc_remote: str | None = option(None, "DVC remote whose options, such as sse, remote uses, too; null: none")


class LoggingConfig(Section):
    """What a training run logs; does not change results."""

    every_steps: Count = option(10, "steps between two points in TensorBoard, and between two log lines")
    histograms_every_steps: Count | None = option(None, "between histograms of weights; null: none")
    images_every_steps: Count | None = option(None, "steps between pictures of the input; null: none")
    profile_from_step: Count | None = option(None, "first step of a profile; null: no profile")
    profile_steps: Count = option(10, "steps in the profile")
    device_placement: bool = option(False, "print the device of every operation, as TensorFlow logs it")
    sinks: list[choices.Sink] = option([], "other programs that get results, such as [mlflow]")
