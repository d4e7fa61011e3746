"""The learning rate of each update, against closed forms."""

import math
from collections.abc import Callable

import keras
import pytest
import tensorflow as tf
from conftest import Load

from perennial.model.training import schedules

RATE, STEPS = 0.1, 100
STEPS_SEEN = (0, 1, 4, 5, 6, 29, 30, 31, 59, 60, 61, 99, 100, 101, 5000)


def rates(load: Load, steps: int = STEPS, **schedule: object) -> Callable[[int], float]:
    """The rate by step for 1,000 examples in batches of 100."""
    values = {f"train.schedule.{key}": value for key, value in schedule.items()}
    config = load(**{"train.learning_rate": RATE, **values}).train
    return schedules.logged_rate(schedules.build(config, examples=1000, batch_size=100, steps=steps))


def rise(step: int) -> float:
    return min(step / 5, 1)


CASES: dict[str, tuple[dict[str, object], Callable[[int], float]]] = {
    "fixed": ({"name": "fixed"}, lambda _: RATE),
    "fixed, warmed up": ({"name": "fixed", "warmup_steps": 5}, lambda step: RATE * rise(step)),
    "staircase": (
        {"name": "exponential", "decay_steps": 30, "decay_factor": 0.5, "staircase": True},
        lambda step: RATE * 0.5 ** (step // 30),
    ),
    "staircase of three epochs, warmed up": (
        {"name": "exponential", "epochs_per_decay": 3.0, "decay_factor": 0.5, "warmup_steps": 5},
        lambda step: RATE * rise(step) * 0.5 ** (step // 30),
    ),
    "smooth": (
        {"name": "exponential", "decay_steps": 30, "decay_factor": 0.5, "staircase": False},
        lambda step: RATE * 0.5 ** (step / 30),
    ),
    "straight line": (
        {"name": "polynomial", "power": 1.0, "end_learning_rate": 0.01},
        lambda step: 0.01 + (RATE - 0.01) * (1 - min(step, 100) / 100),
    ),
    "parabola of six epochs, warmed up": (
        {
            "name": "polynomial", "power": 2.0, "epochs_per_decay": 6.0, "end_learning_rate": 0.0,
            "warmup_steps": 5,
        },
        lambda step: RATE * rise(step) * (1 - min(max(step - 5, 0), 60) / 60) ** 2,
    ),
    "cosine, warmed up": (
        {"name": "cosine", "end_learning_rate": 0.02, "warmup_steps": 5},
        lambda step: rise(step) * (0.02 + 0.08 * (1 + math.cos(math.pi * min(max(step - 5, 0), 95) / 95)) / 2),
    ),
    "cosine of 60 updates": (
        {"name": "cosine", "end_learning_rate": 0.0, "decay_steps": 60},
        lambda step: RATE * (1 + math.cos(math.pi * min(step, 60) / 60)) / 2,
    ),
    "piecewise, warmed up": (
        {"name": "piecewise", "boundaries": [30, 60], "values": [0.1, 0.01], "warmup_steps": 5},
        lambda step: RATE * rise(step) * (1 if step < 30 else 0.1 if step < 60 else 0.01),
    ),
    "one piece": ({"name": "piecewise", "boundaries": [], "values": []}, lambda _: RATE),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_schedule_gives_what_its_formula_gives(case: str, load: Load) -> None:
    schedule, formula = CASES[case]
    rate = rates(load, **schedule)
    assert [rate(step) for step in STEPS_SEEN] == pytest.approx([formula(step) for step in STEPS_SEEN])


@pytest.mark.parametrize("case", ["staircase of three epochs, warmed up", "cosine, warmed up"])
def test_an_optimizer_uses_the_rate_that_is_logged(case: str, load: Load) -> None:
    schedule, formula = CASES[case]
    values = {f"train.schedule.{key}": value for key, value in schedule.items()}
    config = load(**{"train.learning_rate": RATE, **values}).train
    weight = keras.Variable([0.0])
    optimizer = keras.optimizers.SGD(schedules.build(config, examples=1000, batch_size=100, steps=STEPS))
    optimizer.build([weight])
    update = tf.function(lambda: optimizer.apply([tf.constant([-1.0])], [weight]), autograph=False)
    seen = []
    for _ in range(35):
        before = float(weight.numpy()[0])
        update()
        seen.append(float(weight.numpy()[0]) - before)
    assert seen == pytest.approx([formula(step) for step in range(35)], abs=1e-6)


@pytest.mark.parametrize(
    ("batch_size", "epochs", "first_decay"),
    [(128, 350.0, 136_718), (32, 200.0, 312_500)],  # cifar10 tutorial; TF-Slim's cifarnet
)
def test_cifar_presets_decay_where_the_originals_do(batch_size, epochs, first_decay, load) -> None:
    schedule = {"name": "exponential", "decay_factor": 0.1, "epochs_per_decay": epochs}
    values = {"train.learning_rate": 0.1, **{f"train.schedule.{key}": each for key, each in schedule.items()}}
    config, given = load(**values).train, load(**values, **{"train.schedule.decay_steps": first_decay}).train
    for each, examples in ((config, 50_000), (given, 45_000)):
        made = schedules.build(each, examples=examples, batch_size=batch_size, steps=1_000_000)
        rate = schedules.logged_rate(made)
        seen = [rate(step) for step in (0, 100_000, first_decay - 1, first_decay, 2 * first_decay - 1)]
        assert seen == pytest.approx([0.1, 0.1, 0.1, 0.01, 0.01])


def test_a_decay_is_on_time_after_more_updates_than_float32_counts(load: Load) -> None:
    rate = rates(load, name="exponential", decay_steps=33_554_433, decay_factor=0.5)
    assert [rate(33_554_432), rate(33_554_433)] == [RATE, RATE / 2]


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        ({"name": "exponential", "decay_steps": 7, "epochs_per_decay": 2.0}, 7),  # what is exact goes first
        ({"name": "exponential", "epochs_per_decay": 2.25}, 22),  # of 22.5: whole updates, as in TF-Slim
        ({"name": "exponential", "epochs_per_decay": 0.01}, 1),
        ({"name": "cosine"}, 100),
        ({"name": "cosine", "warmup_steps": 30}, 70),
        ({"name": "polynomial", "warmup_steps": 200}, 1),  # nothing is left to decay over
    ],
)
def test_a_decay_is_as_long_as_it_says(schedule: dict[str, object], steps: int, load: Load) -> None:
    config = load(**{f"train.schedule.{key}": value for key, value in schedule.items()}).train
    assert schedules.decay_steps(config.schedule, examples=1000, batch_size=100, steps=STEPS) == steps


def test_rates_are_the_same_in_any_order(load: Load) -> None:
    steps = [0, 1023, 1024, 5000, 9999]
    forth, back = (rates(load, name="cosine", steps=10_000) for _ in range(2))
    assert [forth(step) for step in steps] == [back(step) for step in reversed(steps)][::-1]
