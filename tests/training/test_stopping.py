"""How long training is and when it ends."""

import math

import pytest
from conftest import Load

from perennial.errors import PerennialError
from perennial.training import stopping
from perennial.training.stopping import Limit, Metric

NAN = math.nan


@pytest.mark.parametrize(
    ("examples", "batch_size", "epochs", "max_steps", "steps", "limit", "begun"),
    [
        (100, 10, 3, None, 30, "epochs", 3),
        (101, 10, 3, None, 33, "epochs", 3),  # the last, smaller batch is a step too
        (100, 10, None, 7, 7, "steps", 1),
        (100, 8, None, 31, 31, "steps", 3),
        (5, 10, 2, None, 2, "epochs", 2),  # fewer examples than a batch
    ],
)
def test_length_is_counted_in_steps(
    *,
    examples: int,
    batch_size: int,
    epochs: int | None,
    max_steps: int | None,
    steps: int,
    limit: str,
    begun: int,
) -> None:
    length = stopping.length(examples=examples, batch_size=batch_size, epochs=epochs, max_steps=max_steps)
    assert (length.steps, length.limit, length.epochs) == (steps, limit, begun)


@pytest.mark.parametrize(
    ("metric", "score", "threshold", "stops"),
    [
        ("accuracy", 0.9, 0.9, True),
        ("accuracy", 0.89, 0.9, False),
        ("recall_at_5", 0.9, 0.9, True),
        ("recall_at_5", 0.89, 0.9, False),
        ("loss", 0.9, 0.9, True),
        ("loss", 0.89, 0.9, True),
        ("loss", 0.91, 0.9, False),
        ("accuracy", 1.0, None, False),
        ("loss", 0.0, None, False),
        ("accuracy", NAN, 0.1, False),
        ("loss", NAN, 0.1, False),
        ("loss", math.inf, 0.1, False),
    ],
)
def test_a_score_at_least_as_good_as_the_threshold_reaches_it(
    metric: Metric, score: float, threshold: float | None, stops: bool
) -> None:
    assert stopping.reached(metric, score, threshold) is stops


@pytest.mark.parametrize(
    ("metric", "new", "best", "is_better"),
    [
        ("accuracy", 0.6, 0.5, True),
        ("accuracy", 0.5, 0.5, False),
        ("recall_at_5", 0.4, 0.5, False),
        ("loss", 0.4, 0.5, True),
        ("loss", 0.5, 0.5, False),
        ("loss", 0.6, 0.5, False),
        ("accuracy", 0.0, None, True),
        ("accuracy", NAN, 0.5, False),
        ("loss", NAN, 0.5, False),
        ("accuracy", NAN, None, False),
        ("loss", NAN, None, False),
    ],
)
def test_better_is_higher_or_for_a_loss_lower(
    metric: Metric, new: float, best: float | None, is_better: bool
) -> None:
    assert stopping.better(metric, new, best) is is_better


@pytest.mark.parametrize(
    ("metric", "scores", "index"),
    [
        ("accuracy", [0.1, 0.3, 0.3, 0.2], 1),
        ("loss", [2.0, 1.0, 1.0, 3.0], 1),
        ("accuracy", [NAN, 0.2, NAN], 1),
        ("loss", [NAN, NAN], None),
        ("loss", [], None),
    ],
)
def test_the_best_score_is_the_first_of_equals_and_a_number(
    metric: Metric, scores: list[float], index: int | None
) -> None:
    assert stopping.best(metric, scores) == index


@pytest.mark.parametrize(
    ("metric", "threshold", "patience", "scores", "limit", "stopped_by"),
    [
        ("accuracy", 0.9, None, [0.5, 0.9], None, "threshold"),
        ("accuracy", 0.9, None, [0.95, 0.5], None, None),  # only weights that are as good as that
        ("loss", 0.9, None, [1.0, 0.9], None, "threshold"),
        ("accuracy", 0.9, None, [0.95], "epochs", "threshold"),
        ("accuracy", 0.9, None, [0.5], "epochs", "epochs"),
        ("accuracy", None, None, [0.5], "steps", "steps"),
        ("accuracy", None, 2, [0.5, 0.5], None, None),
        ("accuracy", None, 2, [0.5, 0.5, 0.4], None, "patience"),
        ("accuracy", None, 2, [0.5, 0.4, 0.6, 0.6], None, None),
        ("accuracy", None, 2, [0.5, 0.4, 0.6, 0.6, 0.5], None, "patience"),
        ("loss", None, 1, [0.5, 0.4], None, None),
        ("loss", None, 1, [0.5, 0.6], None, "patience"),
        ("loss", None, 2, [NAN, NAN], None, "patience"),
        ("loss", None, 2, [0.5, NAN, 0.4], None, None),
        ("accuracy", None, 1, [0.5, 0.4], "steps", "patience"),
        ("accuracy", None, None, [0.1] * 9, None, None),
    ],
)
def test_what_ends_a_training(
    *,
    metric: Metric,
    threshold: float | None,
    patience: int | None,
    scores: list[float],
    limit: Limit | None,
    stopped_by: str | None,
    load: Load,
) -> None:
    config = load(
        **{"train.stop_metric": metric, "train.stop_threshold": threshold, "train.patience": patience}
    ).train
    assert stopping.decide(config, scores, of_head=0, limit=limit) == stopped_by


@pytest.mark.parametrize(
    ("scores", "of_head", "stopped_by"),
    [
        ([0.5, 0.4, 0.4, 0.4], 4, None),  # the rest of the net is still to come
        ([0.5, 0.4, 0.4, 0.4], 3, None),
        ([0.5, 0.4, 0.4, 0.4], 2, "patience"),
        ([0.5, 0.4, 0.6, 0.5], 1, None),
    ],
)
def test_patience_begins_when_the_head_is_trained(
    scores: list[float], of_head: int, stopped_by: str | None, load: Load
) -> None:
    config = load(**{"train.patience": 2, "train.stop_threshold": None}).train
    assert stopping.decide(config, scores, of_head=of_head, limit=None) == stopped_by


@pytest.mark.parametrize(
    ("tensors", "last_good", "message"),
    [
        (
            ["loss"],
            10,
            "the loss is NaN or infinite at step 12; no model was written, the checkpoint of step 10",
        ),
        (
            ["logits", "loss", "gradient of conv/kernel"],
            10,
            "the logits are .* 12 .and 2 other tensors after it",
        ),
        (["gradient of conv/kernel"], None, "the gradient of conv/kernel is .*, no checkpoint was kept"),
    ],
)
def test_a_value_that_is_no_number_ends_the_training_with_its_place(
    tensors: list[str], last_good: int | None, message: str
) -> None:
    with pytest.raises(PerennialError, match=message) as caught:
        stopping.refuse_non_finite(12, tensors, last_good=last_good)
    assert caught.value.exit_code == 1


def test_a_training_whose_tensors_are_finite_goes_on() -> None:
    stopping.refuse_non_finite(12, [], last_good=None)
