"""What a task learns of the stage that it ran."""

from tasks.dvc import StageFailed


def test_a_failure_shows_its_first_line_and_keeps_the_rest() -> None:
    error = StageFailed("train", 3, "first\nsecond")
    assert str(error) == "train ended with exit code 3: first"
    assert error.message == "first\nsecond"
