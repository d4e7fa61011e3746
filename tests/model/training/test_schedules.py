"""The learning rate of each update, against closed forms."""

import math
from collections.abc import Callable

import pytest
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


def test_a_decay_is_on_time_after_more_updates_than_float32_counts(load: Load) -> None:
    rate = rates(load, name="exponential", decay_steps=33_554_433, decay_factor=0.5)
    assert [rate(33_554_432), rate(33_554_433)] == [RATE, RATE / 2]


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        ({"name": "exponential", "decay_steps": 7, "epochs_per_decay": 2.0}, 7),  # what is exact goes first
        (
            {"name": "exponential", "epochs_per_decay": 350.0},
            136_718,
        ),  # of 136,718.75, as in the cifar10 tutorial
        ({"name": "exponential", "epochs_per_decay": 0.001}, 1),
        ({"name": "cosine"}, 100),
        ({"name": "cosine", "warmup_steps": 30}, 70),
        ({"name": "polynomial", "warmup_steps": 200}, 1),  # nothing is left to decay over
    ],
)
def test_a_decay_is_as_long_as_it_says(schedule: dict[str, object], steps: int, load: Load) -> None:
    config = load(**{f"train.schedule.{key}": value for key, value in schedule.items()}).train
    assert schedules.decay_steps(config.schedule, examples=50_000, batch_size=128, steps=STEPS) == steps


def test_rates_are_the_same_in_any_order(load: Load) -> None:
    steps = [0, 1023, 1024, 5000, 9999]
    forth, back = (rates(load, name="cosine", steps=10_000) for _ in range(2))
    assert [forth(step) for step in steps] == [back(step) for step in reversed(steps)][::-1]
