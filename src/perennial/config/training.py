"""The sections of params.yaml about training."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from perennial.config import names
from perennial.config.optimization import (
    AveragesConfig,
    HeadConfig,
    LossScale,
    OptimizersConfig,
    ScheduleConfig,
    WarmStartConfig,
)
from perennial.config.types import Devices, Section, Seed, shown

Positive = Annotated[float, Field(gt=0)]


class TrainConfig(Section):
    """How the weights are found."""

    epochs: int | None = Field(ge=1, description="passes over the training split; null: max_steps decides")
    max_steps: int | None = Field(ge=1, description="optimizer updates; null: epochs decides")
    batch_size: int = Field(ge=1, description="examples an update, over all devices together")
    epochs_between_evals: int = Field(ge=1, description="epochs between two evaluations")
    steps_between_evals: int | None = Field(
        ge=1, description="updates between two evaluations; null: epochs_between_evals decides"
    )
    stop_metric: Literal["accuracy", "loss", "recall_at_5"] = Field(
        description="validation score that stop_threshold, patience and keep: best look at"
    )
    stop_threshold: float | None = Field(
        gt=0,
        description="value of stop_metric that ends the training: at least for accuracy and recall_at_5, "
        "at most for loss; fractions, not percentages; null: never",
    )
    patience: int | None = Field(
        ge=1,
        description="evaluations without a better stop_metric that end the training, those of the head alone "
        "left out; null: never",
    )
    keep: Literal["last", "best"] = Field(description="which evaluated weights become the model")
    optimizer: names.Optimizer = Field(description="the optimizer")
    learning_rate: float = Field(gt=0, description="step size of the optimizer, before any decay")
    optimizers: OptimizersConfig
    schedule: ScheduleConfig
    weight_decay: float | None = Field(
        ge=0,
        description="L2 penalty: this times half the sum of squares of the weights that the architecture "
        "says; null: the architecture's own",
    )
    label_smoothing: float = Field(ge=0, lt=1, description="share of the label given to all classes alike")
    class_weights: Literal["balanced"] | list[Positive] | None = Field(
        description="what an example's loss is multiplied by: balanced (rare classes count more), "
        "one number a class, or null: 1"
    )
    aux_loss_weight: float = Field(ge=0, description="of an auxiliary classifier, where the net has one")
    clip_norm: float | None = Field(gt=0, description="largest norm of all gradients together; null: any")
    averages: AveragesConfig
    trainable: list[str] = Field(description="patterns of layers that are trained; empty: all")
    head: HeadConfig
    warm_start: WarmStartConfig
    batch_norm: Literal["per_replica", "synced"] = Field(
        description="whether batch normalization looks at a device's part of the batch, or at all of it"
    )
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        description="of the arithmetic; the weights stay float32"
    )
    loss_scale: LossScale = Field(description="float16: dynamic, or a fixed number")
    xla: bool = Field(description="compile the update with XLA; needs deterministic: false")
    deterministic: bool = Field(description="equal runs give equal weights, bit by bit")
    seed: Seed = Field(description="chooses initial weights, order of examples, distortions and dropout")
    devices: Devices = Field(description="auto, cpu:N, gpu:N (that many) or gpu:0,2 (these)")
    all_reduce: Literal["auto", "nccl", "hierarchical_copy", "reduce_to_one", "ring"] = Field(
        description="how devices add up their gradients (ring: several machines)"
    )
    intra_op_threads: int = Field(ge=0, description="threads inside one operation; 0: one a core")
    inter_op_threads: int = Field(ge=0, description="operations at once; 0: one a core")
    cache: Literal["auto", "memory", "disk", "none"] = Field(
        description="where decoded images of one size are kept: auto takes memory if they fit memory_mb"
    )
    memory_mb: int = Field(
        ge=1, description="megabytes for images; a larger split is shuffled in groups of shards of this size"
    )
    synthetic_data: bool = Field(description="random images in place of the records, to measure speed alone")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if (self.epochs is None) == (self.max_steps is None):
            raise PydanticCustomError(
                "together",
                "train.epochs and train.max_steps: exactly one must be set, got {epochs} and {steps}",
                {"epochs": shown(self.epochs), "steps": shown(self.max_steps)},
            )
        if self.stop_metric != "loss" and self.stop_threshold is not None and self.stop_threshold > 1:
            raise PydanticCustomError(
                "together",
                "train.stop_threshold must be in (0, 1], got {value} (a share of {metric}, no percentage)",
                {"value": shown(self.stop_threshold), "metric": self.stop_metric},
            )
        if self.xla and self.deterministic:
            raise PydanticCustomError(
                "together",
                "train.xla needs train.deterministic: false: XLA has no deterministic form of every gradient",
            )
        return self


class CheckpointsConfig(Section):
    """When a training saves what it needs to continue; changes no result."""

    interval_s: float | None = Field(gt=0, description="seconds between two checkpoints; null: not by time")
    interval_steps: int | None = Field(ge=1, description="updates between two; null: not by updates")
    max_to_keep: int = Field(ge=1, description="checkpoints that stay; the last and its reserve always do")


class LoggingConfig(Section):
    """What a training tells of itself; changes no result."""

    every_steps: int = Field(
        ge=1,
        description="updates between two points of TensorBoard's curves; without a terminal also between "
        "two log lines, of which there is at most one each 10 s",
    )
    histograms_every_steps: int | None = Field(
        ge=1, description="updates between histograms of weights, gradients, activations; null: none"
    )
    images_every_steps: int | None = Field(
        ge=1, description="updates between pictures of what the model is given; null: none"
    )
    profile_from_step: int | None = Field(ge=1, description="first update that is profiled; null: none")
    profile_steps: int = Field(ge=1, description="how many are profiled")
