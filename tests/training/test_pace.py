"""How many updates a call runs, and the speeds that are told."""

import pytest

from perennial.training import pace
from perennial.training.pace import Pace


@pytest.fixture
def after(monkeypatch):
    """A pace after calls of so many steps that took so many seconds each, 10 examples a step."""

    def make(*calls):
        made, now = Pace(), [0.0]
        monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
        for steps, seconds in calls:
            made.start()
            now[0] += seconds
            made.done(steps=steps, examples=10 * steps, waited_s=seconds / 4)
        return made

    return make


WARM_UP = [(1, 9.0)] * pace.WARM_UP_STEPS


def test_updates_are_run_singly_until_the_speed_is_known(after):
    assert after().steps_a_call == after(*WARM_UP).steps_a_call == 1


@pytest.mark.parametrize(("step_s", "steps"), [(0.125, 4), (1 / 128, 64), (2.0, 1), (1e-6, pace.MOST_STEPS)])
def test_a_call_lasts_half_a_second_or_one_update(after, step_s, steps):
    assert after(*WARM_UP, (1, step_s)).steps_a_call == steps


def test_a_training_that_slows_down_gets_shorter_calls(after):
    assert after(*WARM_UP, (1, 0.01), (50, 25.0)).steps_a_call == 1


def test_the_warm_up_is_in_no_speed(after):
    made = after(*WARM_UP, (1, 0.5), (4, 0.5))
    assert made.examples_per_second == 50
    assert made.input_wait == 0.25


def test_there_is_no_speed_before(after):
    made = after(*WARM_UP)
    assert (made.examples_per_second, made.input_wait) == (None, None)
