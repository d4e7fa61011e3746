# Origin: research/slim/train_image_classifier.py of github.com/tensorflow/models (Apache-2.0):
# the schedules and how they count steps.
"""Learning rate schedules, as TF-Slim and Keras define them."""

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from keras.optimizers.schedules import (
    CosineDecay,
    ExponentialDecay,
    LearningRateSchedule,
    PiecewiseConstantDecay,
    PolynomialDecay,
)

from perennial.base.config.fields import is_component
from perennial.base.config.training import ScheduleConfig, TrainConfig
from perennial.base.project import own_components

Decay = Callable[[tf.Tensor], tf.Tensor]  # from the number of completed steps, float64, to the rate

# These decay from one rate to another over a given length, so they start after the warm-up. The others change
# at given steps, counted from the first.
AFTER_WARMUP = ("polynomial", "cosine")
BLOCK = 1024  # rates per call when computing them for the log


class Schedule(LearningRateSchedule):  # type: ignore[misc]  # Keras ships no types
    """A linear warm-up from 0, then a decay; in float64, since float32 miscounts above 16,777,216 steps."""

    def __init__(self, decay: Decay, *, warmup_steps: int, decay_from: int) -> None:
        self._decay, self._warmup_steps, self._decay_from = decay, warmup_steps, decay_from

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The rate of the step that follows `step` completed ones, float64 in the shape of `step`."""
        step = tf.cast(step, tf.float64)
        rate = tf.cast(self._decay(tf.maximum(step - self._decay_from, 0.0)), tf.float64)
        if not self._warmup_steps:
            return rate
        return rate * tf.minimum(step / self._warmup_steps, 1.0)


def decay_steps(schedule: ScheduleConfig, *, examples: int, batch_size: int, steps: int) -> int:
    """The number of steps of one decay: as configured, counted in epochs as TF-Slim does, or all steps.

    `steps` is the length of the training; a decay that starts after the warm-up is shorter by the warm-up.
    """
    if schedule.decay_steps is not None:
        return schedule.decay_steps
    if schedule.epochs_per_decay is not None:
        return max(int(examples / batch_size * schedule.epochs_per_decay), 1)
    return max(steps - (schedule.warmup_steps if schedule.name in AFTER_WARMUP else 0), 1)


def build(config: TrainConfig, *, examples: int, batch_size: int, steps: int) -> LearningRateSchedule | float:
    """Build the learning rate for an optimizer; a number if it is constant.

    A rate is a function of the number of completed steps: a decay after 100 steps changes the 101st.
    """
    schedule = config.schedule
    if schedule.name == "fixed" and not schedule.warmup_steps:
        return config.learning_rate
    length = decay_steps(schedule, examples=examples, batch_size=batch_size, steps=steps)
    return Schedule(
        _made(np.float64(config.learning_rate), schedule, length),
        warmup_steps=schedule.warmup_steps,
        decay_from=schedule.warmup_steps if schedule.name in AFTER_WARMUP else 0,
    )


def _made(rate: np.float64, schedule: ScheduleConfig, length: int) -> Decay:
    """The decay of a schedule, which may be a component of the project."""
    if not is_component(schedule.name):
        decay: Decay = SCHEDULES[schedule.name](rate, schedule, length)
        return decay
    name = schedule.name
    function = own_components.load(name, "a class or function of rate, schedule and steps", callable)
    made = own_components.call(name, function, float(rate), schedule, length)
    if not callable(made):
        raise own_components.refused(
            name, f"returned {own_components.described(made)}, expected a function of the step"
        )
    first = own_components.call(name, made, tf.range(2, dtype=tf.float64))
    if not tf.is_tensor(first) or first.shape != (2,) or not bool(tf.reduce_all(first >= 0)):
        raise own_components.refused(
            name, f"returned a function whose result for the steps [0, 1] is {first}, expected two rates from 0"
        )
    own: Decay = made
    return own


def logged_rate(learning_rate: LearningRateSchedule | float) -> Callable[[int], float]:
    """A function from the number of completed steps to the learning rate of the next step, for the log."""
    if isinstance(learning_rate, float):
        return lambda _: learning_rate

    @functools.lru_cache(maxsize=2)
    def block(number: int) -> list[float]:
        rates: list[float] = learning_rate(np.arange(number * BLOCK, (number + 1) * BLOCK)).numpy().tolist()
        return rates

    return lambda step: block(step // BLOCK)[step % BLOCK]


def _piecewise(rate: np.float64, schedule: ScheduleConfig, length: int) -> LearningRateSchedule:
    if not schedule.boundaries:
        return SCHEDULES["fixed"](rate, schedule, length)
    # Keras assigns a boundary to the interval before it.
    boundaries = [boundary - 1 for boundary in schedule.boundaries]
    return PiecewiseConstantDecay(boundaries, [rate, *(rate * np.float64(each) for each in schedule.values)])


# Functions of rate, schedule and decay length that return the rate at each step, all in float64.
SCHEDULES: dict[str, Callable[[np.float64, ScheduleConfig, int], LearningRateSchedule]] = {
    "fixed": lambda rate, _, length: ExponentialDecay(rate, length, np.float64(1)),
    "exponential": lambda rate, schedule, length: ExponentialDecay(
        rate, length, np.float64(schedule.decay_factor), staircase=schedule.staircase
    ),
    "polynomial": lambda rate, schedule, length: PolynomialDecay(
        rate, length, np.float64(schedule.end_learning_rate), power=np.float64(schedule.power)
    ),
    "cosine": lambda rate, schedule, length: CosineDecay(rate, length, alpha=schedule.end_learning_rate / rate),
    "piecewise": _piecewise,
}
