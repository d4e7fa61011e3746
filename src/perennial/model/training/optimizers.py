"""Optimizers, learning rates by layer, and gradient updates on one or several devices."""

from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from perennial.base.config.fields import is_component, short_name
from perennial.base.config.training import TrainConfig
from perennial.base.project import own_components
from perennial.model.training.warm_start import layers_of_weights, names_weight, refuse_unknown

GROUPS = 12  # of layers with one rate each, as many as blocks of the transformers that layer decay comes from


def build(
    config: TrainConfig,
    learning_rate: keras.optimizers.schedules.LearningRateSchedule | float,
    factors: Sequence[float] = (),
) -> keras.optimizers.Optimizer:
    """Build the configured optimizer, for `apply`; scale the loss with its `scale_loss`, as float16 requires.

    With the default options, its formulas are those of TensorFlow 1, where it has the optimizer. `factors`: of
    the learning rate, for each weight that the optimizer will be built with; empty: 1 for all.
    """
    fixed = config.loss_scale if config.precision == "float16" and config.loss_scale != "dynamic" else None
    if is_component(config.optimizer):
        optimizer = _component(config.optimizer, learning_rate)
        optimizer.loss_scale_factor = fixed
    else:
        optimizer = OPTIMIZERS[config.optimizer](
            learning_rate,
            name=config.optimizer,  # Keras numbers unnamed ones, and checkpoints identify slots by name
            loss_scale_factor=fixed,
            **{KERAS_NAMES.get(key, key): value for key, value in config.optimizer_settings.items()},
        )
    kinds: list[type] = [_TakesSums, type(optimizer)]
    if factors:
        kinds.insert(0, _Rated)
        optimizer.factors = tuple(factors)
    optimizer.__class__ = type(kinds[-1].__name__, tuple(kinds), {})
    if config.precision == "float16" and config.loss_scale == "dynamic":
        return keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale")
    return optimizer


def rate_factors(config: TrainConfig, model: keras.Model, head: Sequence[str]) -> list[float]:
    """The factor of the learning rate of each trainable weight of a model; empty if `config` sets none.

    `train.rates` names layers. `train.layer_decay` gives the head 1, and each of twelve equal groups of the
    other layers, in their order from the output to the input, the decay times the factor of the group above:
    the layer-wise decay of ELECTRA (Clark et al. 2020) and BEiT (Bao et al. 2021) for networks of any kind.
    """
    if not config.rates and config.layer_decay is None:
        return []
    refuse_unknown("train.rates", config.rates, model, or_weights=True)
    of = layers_of_weights(model)
    below = list(dict.fromkeys(path.rpartition("/")[0] for path in of if not names_weight(head, path, of)))
    groups = min(GROUPS, len(below))
    depth = {layer: groups - number * groups // len(below) for number, layer in enumerate(below)}
    decay = 1.0 if config.layer_decay is None else config.layer_decay

    def factor(path: str) -> float:
        chosen = (rate for pattern, rate in config.rates.items() if names_weight([pattern], path, of))
        return next(chosen, 1.0) * decay ** depth.get(path.rpartition("/")[0], 0)

    return [factor(weight.path) for weight in model.trainable_variables]


def _component(name: str, learning_rate: Any) -> keras.optimizers.Optimizer:
    """The optimizer of a component of the project: a class, or a function of the learning rate."""
    function = own_components.load(name, "a class or function of rate", callable)
    made = own_components.call(name, function, learning_rate)
    if not isinstance(made, keras.optimizers.Optimizer):
        wrong = f"returned {own_components.described(made)}, expected a Keras optimizer"
        raise own_components.refused(name, wrong)
    kept = getattr(made, "inner_optimizer", made)._learning_rate  # noqa: SLF001 - where Keras keeps a schedule
    is_number = isinstance(learning_rate, float)
    if float(made.learning_rate) != np.float32(learning_rate) if is_number else kept is not learning_rate:
        wrong = "has another learning rate than the one of params.yaml, which it was given; let it use that one"
        raise own_components.refused(name, wrong)
    made.name = short_name(name)
    return made


def apply(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[tf.Tensor],
    weights: Sequence[keras.Variable],
    *,
    clip_norm: float | None,
) -> None:
    """Update the weights with the sum of the gradients of all replicas; call it on each replica.

    The gradients are summed first: clipped parts could add up to more than the limit, and Keras' loss scaling
    checks only the gradients of the first replica for overflows.
    """
    summed = tf.distribute.get_replica_context().all_reduce("SUM", list(gradients))
    if clip_norm is not None:
        summed, _ = tf.clip_by_global_norm(summed, clip_norm * optimizer.scale_loss(1.0))
    optimizer.apply(summed, weights)


class _TakesSums:
    """Disables Keras' own sum over replicas, which comes after clipping; no option does (keras issue 19308)."""

    def _all_reduce_sum_gradients(
        self, gradients_and_weights: Sequence[tuple[tf.Tensor, tf.Variable]]
    ) -> list[tuple[tf.Tensor, tf.Variable]]:
        return list(gradients_and_weights)


class _Rated(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Multiplies the learning rate of each weight, also in AdamW's decay, by a factor of its own."""

    factors: Sequence[float]

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        """Leave it to the step, which knows the weight's own rate."""

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Decay the weight as Keras does before the step, then update it."""
        rate = learning_rate * self.factors[self._get_variable_index(variable)]
        if self.weight_decay is not None and self._use_weight_decay(variable):
            variable.assign_sub(variable * tf.cast(self.weight_decay, variable.dtype) * rate)
        super().update_step(gradient, variable, rate)


class _InOneKernel(keras.optimizers.Adam):  # type: ignore[misc]  # Keras ships no types
    """Adam with one fused operation per weight, a quarter of the time of Keras' sixteen (keras issue 19307)."""

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Apply Keras' formula; AMSGrad uses Keras' implementation, since XLA has no operation for it."""
        if self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        index, step = self._get_variable_index(variable), tf.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(self.beta_1, step),
            beta2_power=tf.pow(self.beta_2, step),
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.cast(gradient, variable.dtype),
        )


class _Momentum(keras.optimizers.SGD):  # type: ignore[misc]
    """Momentum that sums gradients, as in TensorFlow 1, or steps with their past rates, as in Keras."""

    def __init__(self, *args: Any, accumulate: Literal["gradients", "steps"], **options: Any) -> None:
        super().__init__(*args, **options)
        self._gradients = accumulate == "gradients" and self.momentum > 0

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Apply TensorFlow 1's kernel or Keras' formula."""
        if not self._gradients:
            super().update_step(gradient, variable, learning_rate)
            return
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=self.momentums[self._get_variable_index(variable)].value.handle,
            lr=tf.cast(learning_rate, variable.dtype),
            grad=tf.cast(gradient, variable.dtype),
            momentum=tf.cast(self.momentum, variable.dtype),
            use_nesterov=self.nesterov,
        )


class _RMSprop(keras.optimizers.RMSprop):  # type: ignore[misc]
    """RMSProp whose mean of squared gradients starts from any value; Keras' starts from 0."""

    def __init__(self, *args: Any, initial_accumulator_value: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._initial = initial_accumulator_value

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the slots."""
        super().build(variables)
        for squares in self._velocities:
            squares.assign(tf.fill(squares.shape, self._initial))


KERAS_NAMES = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
OPTIMIZERS: dict[str, type] = {
    "adadelta": keras.optimizers.Adadelta,
    "adagrad": keras.optimizers.Adagrad,
    "adam": _InOneKernel,
    "adamw": type("AdamW", (_InOneKernel, keras.optimizers.AdamW), {}),
    "ftrl": keras.optimizers.Ftrl,
    "momentum": _Momentum,
    "rmsprop": _RMSprop,
    "sgd": keras.optimizers.SGD,
}
