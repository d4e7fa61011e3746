"""The sections of params.yaml about optimizers and learning rates."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from perennial.config import names
from perennial.config.types import Section

# The names and the formulas are those of Keras, the defaults in params.yaml those of TF-Slim where it has one.
Decay = Annotated[float, Field(ge=0, lt=1)]
Epsilon = Annotated[float, Field(gt=0, description="added to the denominator, against division by zero")]


class Adadelta(Section):
    """Adadelta (Zeiler 2012)."""

    rho: Decay = Field(description="decay of both running means")
    epsilon: Epsilon


class Adagrad(Section):
    """Adagrad (Duchi et al. 2011)."""

    initial_accumulator_value: float = Field(ge=0, description="what the sums of squares start from")
    epsilon: Epsilon


class Adam(Section):
    """Adam (Kingma and Ba 2014)."""

    beta_1: Decay = Field(description="decay of the mean of gradients")
    beta_2: Decay = Field(description="decay of the mean of squared gradients")
    epsilon: Epsilon
    amsgrad: bool = Field(description="the variant with the largest second moment so far")


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    weight_decay: float = Field(ge=0, description="share of a weight taken off each update, times the rate")


class Ftrl(Section):
    """FTRL-Proximal (McMahan et al. 2013)."""

    learning_rate_power: float = Field(le=0, description="power of the sum of squares in the step size")
    initial_accumulator_value: float = Field(ge=0, description="what the sums of squares start from")
    l1: float = Field(ge=0, description="strength of the L1 penalty")
    l2: float = Field(ge=0, description="strength of the L2 penalty")


class Momentum(Section):
    """Gradient descent with momentum (Polyak 1964)."""

    momentum: Decay = Field(description="share of the last update that is kept")
    nesterov: bool = Field(description="look ahead by the momentum first")


class RmsProp(Section):
    """RMSProp (Tieleman and Hinton 2012)."""

    rho: Decay = Field(description="decay of the mean of squared gradients")
    momentum: Decay = Field(description="share of the last update that is kept")
    epsilon: Epsilon
    centered: bool = Field(description="divide by the estimated variance, not by the second moment")


class OptimizersConfig(Section):
    """What each optimizer needs besides its learning rate; only the chosen one's are used."""

    adadelta: Adadelta
    adagrad: Adagrad
    adam: Adam
    adamw: AdamW
    ftrl: Ftrl
    momentum: Momentum
    rmsprop: RmsProp


class ScheduleConfig(Section):
    """How the learning rate changes over the updates."""

    name: names.Schedule = Field(description="the rule by which it decays")
    warmup_steps: int = Field(ge=0, description="updates over which it first rises from 0, linearly")
    decay_steps: int | None = Field(
        ge=1,
        description="updates of one decay (exponential) or of the whole decay (polynomial, cosine); "
        "null: as many as epochs_per_decay are",
    )
    epochs_per_decay: float | None = Field(
        gt=0, description="the same in epochs; null: the whole training (polynomial, cosine)"
    )
    decay_factor: float = Field(gt=0, description="exponential: what a decay multiplies the rate by")
    staircase: bool = Field(description="exponential: decay in steps, not steadily")
    end_learning_rate: float = Field(ge=0, description="polynomial, cosine: the rate at the end")
    power: float = Field(gt=0, description="polynomial: 1 is a straight line")
    boundaries: list[Annotated[int, Field(ge=1)]] = Field(
        description="piecewise: updates after which it changes"
    )
    values: list[Annotated[float, Field(gt=0)]] = Field(
        description="piecewise: what the learning rate is multiplied by after each boundary"
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.name == "exponential" and self.decay_steps is None and self.epochs_per_decay is None:
            raise PydanticCustomError(
                "together",
                "train.schedule.decay_steps or train.schedule.epochs_per_decay must be set for exponential",
            )
        if self.boundaries != sorted(set(self.boundaries)) or len(self.boundaries) != len(self.values):
            raise PydanticCustomError(
                "together",
                "train.schedule.boundaries must rise and be as many as train.schedule.values, "
                f"got {self.boundaries} and {self.values}",
            )
        return self


class AveragesConfig(Section):
    """Moving averages of the weights, which evaluate and export then use."""

    decay: float | None = Field(gt=0, lt=1, description="of the averages, 0..1; null: none are kept")
    dynamic: bool = Field(description="decay at most (1 + step) / (10 + step), so that early weights fade")


class HeadConfig(Section):
    """A first phase that trains the last layers alone."""

    steps: int = Field(ge=0, description="its updates, counted in max_steps or epochs; 0: no such phase")
    learning_rate: float = Field(gt=0, description="its learning rate, fixed")


class WarmStartConfig(Section):
    """Weights that a training starts from; a training that has a checkpoint of its own continues that."""

    path: str | None = Field(description="model folder, checkpoint folder or export; null: new weights")
    exclude: list[str] = Field(description="patterns of layers that start new: `logits*`")
    ignore_missing: bool = Field(description="whether layers may lack in it; they then start new")


LossScale = Literal["dynamic"] | Annotated[float, Field(gt=0)]
