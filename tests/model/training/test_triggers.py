"""When a training evaluates, saves, summarizes, profiles and stops."""

import math

import pytest
from conftest import Load

from perennial.model.training import triggers
from perennial.model.training.triggers import Length, Triggers

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
def test_length_counts_steps(*, examples, batch_size, epochs, max_steps, steps, limit, begun, load) -> None:
    values = {"batch_size": batch_size, "epochs": epochs, "max_steps": max_steps}
    length = triggers.length(load(**{f"train.{key}": value for key, value in values.items()}).train, examples)
    assert (length.steps, length.limit, length.epochs) == (steps, limit, begun)


@pytest.mark.parametrize(
    ("metric", "scores", "index"),
    [
        ("accuracy", [0.1, 0.3, 0.3, 0.2], 1),
        ("recall_at_5", [0.1, 0.0, 0.3], 2),
        ("loss", [2.0, 1.0, 1.0, 3.0], 1),
        ("accuracy", [NAN, 0.0, NAN], 1),
        ("loss", [NAN, NAN], None),
        ("loss", [], None),
    ],
)
def test_the_best_score_is_the_first_of_equals_and_a_number(metric, scores, index) -> None:
    assert triggers.best(metric, scores) == index


@pytest.mark.parametrize(
    ("metric", "threshold", "patience", "scores", "limit", "stopped_by"),
    [
        ("accuracy", 0.9, None, [0.5, 0.9], None, "threshold"),
        ("accuracy", 0.9, None, [0.89], None, None),
        ("recall_at_5", 0.9, None, [0.9], None, "threshold"),
        ("accuracy", 0.9, None, [0.95, 0.5], None, None),  # the current weights count
        ("accuracy", 0.1, None, [NAN], None, None),
        ("loss", 0.9, None, [1.0, 0.9], None, "threshold"),
        ("loss", 0.9, None, [0.91], None, None),
        ("loss", 0.1, None, [NAN], None, None),
        ("loss", 0.1, None, [math.inf], None, None),
        ("accuracy", 0.9, None, [0.95], "epochs", "threshold"),
        ("accuracy", 0.9, None, [0.5], "epochs", "epochs"),
        ("accuracy", None, None, [1.0], "steps", "steps"),
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
def test_what_stops_a_training(*, metric, threshold, patience, scores, limit, stopped_by, load) -> None:
    config = load(
        **{"train.stop_metric": metric, "train.stop_threshold": threshold, "train.patience": patience}
    ).train
    assert triggers.stopped_by(config, scores, of_head=0, limit=limit) == stopped_by


@pytest.mark.parametrize(
    ("scores", "of_head", "stopped_by"),
    [
        ([0.5, 0.4, 0.4, 0.4], 4, None),  # the phase of the whole model is still to come
        ([0.5, 0.4, 0.4, 0.4], 3, None),
        ([0.5, 0.4, 0.4, 0.4], 2, "patience"),
        ([0.5, 0.4, 0.6, 0.5], 1, None),
    ],
)
def test_patience_starts_after_the_phase_of_the_head(scores, of_head, stopped_by, load) -> None:
    config = load(**{"train.patience": 2, "train.stop_threshold": None}).train
    assert triggers.stopped_by(config, scores, of_head=of_head, limit=None) == stopped_by


def made(steps: int = 100, **values) -> Triggers:
    length = Length(steps=steps, steps_per_epoch=20, limit="steps")
    return Triggers(**{"length": length, "eval_steps": 40, **values})


def walked(made: Triggers, until: int) -> list[int]:
    """The steps at which something happens."""
    steps = [0]
    while steps[-1] < until:
        steps.append(made.next_event(steps[-1]))
    return steps[1:]


def saves(made: Triggers) -> list[int]:
    return [step for step in range(101) if made.save(step, saved=-1, seconds=0)]


def test_evaluations_follow_every_interval_and_the_last_step() -> None:
    assert [step for step in range(91) if made(90).evaluate(step)] == [40, 80, 90]


def test_checkpoints_follow_every_interval_and_the_phase_of_the_head() -> None:
    assert saves(made(save_steps=25)) == [25, 50, 75, 100]
    assert saves(made(head_steps=7)) == [7]


def test_checkpoints_follow_by_time_and_once_per_step() -> None:
    timed = made(save_seconds=60)
    assert [timed.save(3, saved=0, seconds=seconds) for seconds in (59, 60)] == [False, True]
    assert timed.save(3, saved=3, seconds=60) is False


def test_pictures_and_histograms_follow_their_own_intervals() -> None:
    logged = made(histogram_steps=3, image_steps=2)
    assert [step for step in range(7) if logged.histograms(step)] == [0, 3, 6]
    assert [step for step in range(7) if logged.images(step)] == [0, 2, 4, 6]
    assert not made().histograms(0)


def test_calls_end_at_every_event() -> None:
    assert walked(made(eval_steps=30, head_steps=7, save_steps=45), 100) == [7, 30, 45, 60, 90, 100]
    assert walked(made(histogram_steps=30, image_steps=45), 100) == [30, 40, 45, 60, 80, 90, 100]


def test_a_profile_has_one_step_per_call() -> None:
    assert walked(made(profiled=range(2, 4)), 40) == [2, 3, 4, 40]


def test_the_next_step_belongs_to_an_epoch() -> None:
    assert [made().position(step) for step in (0, 19, 20, 45)] == [(0, 0), (0, 19), (1, 0), (2, 5)]


def test_triggers_are_those_of_the_parameters(load: Load) -> None:
    config = load(
        **{
            "train.epochs_between_evals": 2, "train.head.steps": 3, "checkpoints.interval_steps": 5,
            "checkpoints.interval_s": 6.0, "logging.histograms_every_steps": 10,
            "logging.profile_from_step": 3, "logging.profile_steps": 2,
        }
    )  # fmt: skip
    length = Length(steps=100, steps_per_epoch=20, limit="steps")
    assert Triggers.configured(config, length) == Triggers(
        length=length,
        eval_steps=40,
        head_steps=3,
        save_steps=5,
        save_seconds=6.0,
        histogram_steps=10,
        profiled=range(2, 4),
    )
    assert Triggers.configured(load(**{"train.steps_between_evals": 7}), length).eval_steps == 7
    assert Triggers.configured(config, length, validates=False).eval_steps is None


@pytest.mark.parametrize(("first", "profiled"), [(None, []), (1, [0, 1]), (3, [2, 3])])
def test_the_profile_is_of_as_many_steps_from_the_first_one(first, profiled, load) -> None:
    config = load(**{"logging.profile_from_step": first, "logging.profile_steps": 2})
    length = Length(steps=100, steps_per_epoch=20, limit="steps")
    assert list(Triggers.configured(config, length).profiled) == profiled


def test_nothing_is_evaluated_or_saved_before_the_first_step_but_at_the_end_of_no_steps() -> None:
    assert not made(save_steps=5).save(0, saved=-1, seconds=0)
    assert [made(steps).evaluate(0) for steps in (0, 100)] == [True, False]


def test_the_first_step_may_be_followed_by_all() -> None:
    assert made(eval_steps=1).evaluate(1)
    assert all(
        made(**options).save(1, saved=0, seconds=0) for options in ({"save_steps": 1}, {"head_steps": 1})
    )
