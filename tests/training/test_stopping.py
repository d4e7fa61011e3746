"""When training evaluates and ends."""

import math

import pytest

from perennial.errors import PerennialError
from perennial.training import stopping


@pytest.mark.parametrize(
    ("examples", "batch_size", "epochs", "max_steps", "steps", "limit"),
    [
        (100, 10, 3, None, 30, "epochs"),
        (101, 10, 3, None, 33, "epochs"),  # the last, smaller batch is a step too
        (100, 10, None, 7, 7, "steps"),
        (5, 10, 2, None, 2, "epochs"),  # fewer examples than a batch
    ],
)
def test_length_is_counted_in_steps(
    examples: int, batch_size: int, epochs: int | None, max_steps: int | None, steps: int, limit: str
) -> None:
    length = stopping.length(examples=examples, batch_size=batch_size, epochs=epochs, max_steps=max_steps)
    assert (length.steps, length.limit) == (steps, limit)


def test_the_steps_of_all_epochs_add_up_to_the_length() -> None:
    length = stopping.length(examples=100, batch_size=8, epochs=None, max_steps=31)
    assert sum(length.steps_in(epoch) for epoch in range(length.epochs)) == 31


@pytest.mark.parametrize(("epochs", "between", "after"), [(5, 2, [2, 4, 5]), (4, 2, [2, 4]), (3, 9, [3])])
def test_the_last_epoch_is_always_evaluated(epochs: int, between: int, after: list[int]) -> None:
    found = [
        epoch + 1
        for epoch in range(epochs)
        if stopping.evaluates(epoch, epochs=epochs, epochs_between_evals=between)
    ]
    assert found == after


@pytest.mark.parametrize(
    ("accuracy", "threshold", "stops"),
    [(0.9, 0.9, True), (0.89, 0.9, False), (1.0, None, False), (math.nan, 0.1, False)],
)
def test_the_threshold_ends_the_training_when_it_is_reached(
    accuracy: float, threshold: float | None, stops: bool
) -> None:
    assert stopping.reached(accuracy, threshold) is stops


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_training_with_its_step(loss: float) -> None:
    with pytest.raises(PerennialError, match="by step 12"):
        stopping.refuse_non_finite(loss, 12)
