"""Which checkpoints stay when a training has finished."""

import pytest

from perennial.training import finished


@pytest.fixture
def trainings(tmp_path):
    """Folders of trainings: this one, finished ones and one that can be resumed."""
    for name in ("this", "old", "older", "resumable"):
        (tmp_path / name / "step-000000005").mkdir(parents=True)
    for name in ("old", "older"):
        (tmp_path / name / finished.MARK).touch()
    return tmp_path


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_finished_ones_give_way_and_what_can_be_resumed_stays(trainings):
    finished.mark(trainings / "this", started_from=None)
    assert names(trainings) == {"this", "resumable"}
    assert names(trainings / "this") == {"step-000000005", "finished"}


@pytest.mark.parametrize("inside", ["", "step-000000005"])
def test_the_weights_that_it_started_from_stay(trainings, inside):
    finished.mark(trainings / "this", started_from=str(trainings / "old" / inside))
    assert names(trainings) == {"this", "old", "resumable"}


def test_a_removal_that_was_killed_is_ended(trainings):
    (trainings / "old").rename(trainings / ".old.removed")
    finished.mark(trainings / "this", started_from=None)
    assert names(trainings) == {"this", "resumable"}
