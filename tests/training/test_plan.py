"""What comes at which step."""

from perennial.training.plan import Plan
from perennial.training.stopping import Length


def plan(*, steps=100, steps_per_epoch=20, epochs=2, every=None, head=0, interval=None):
    return Plan(
        length=Length(steps=steps, steps_per_epoch=steps_per_epoch, limit="steps"),
        epochs_between_evals=epochs,
        steps_between_evals=every,
        head_steps=head,
        interval_steps=interval,
    )


def evaluated(made):
    return [step for step in range(made.length.steps + 1) if made.evaluates(step)]


def walked(made):
    """The steps at which something happens, from one to the next."""
    steps = [0]
    while steps[-1] < made.length.steps:
        steps.append(made.next_event(steps[-1]))
    return steps[1:]


def test_evaluations_follow_every_second_epoch_and_the_last_update():
    assert evaluated(plan(steps=90)) == [40, 80, 90]


def test_evaluations_by_updates_do_not_wait_for_the_end_of_an_epoch():
    assert evaluated(plan(steps=70, every=30)) == [30, 60, 70]


def test_nothing_is_evaluated_before_the_first_update():
    assert not plan().evaluates(0)


def test_checkpoints_follow_every_interval():
    made = plan(interval=25)
    assert [step for step in range(101) if made.saves(step)] == [25, 50, 75, 100]


def test_no_interval_means_no_checkpoint_by_updates():
    assert not any(plan().saves(step) for step in range(101))


def test_one_goes_from_event_to_event_and_misses_none():
    made = plan(steps=100, every=30, head=7, interval=45)
    assert walked(made) == [7, 30, 45, 60, 90, 100]


def test_an_update_belongs_to_an_epoch_and_a_place_in_it():
    assert [plan().epoch(step) for step in (0, 19, 20, 45)] == [(0, 0), (0, 19), (1, 0), (2, 5)]
