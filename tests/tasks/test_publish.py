"""Publishing as a task: what it gives, and what stops the flow."""

from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger
from support.exports import decide, write_export

from perennial.config import Config
from tasks.dvc import StageFailed
from tasks.publish import publish


@pytest.fixture
def promoted(load: Callable[..., Config]) -> Config:
    """Parameters with a promoted export and a folder to publish to."""
    config = load(**{"publish.url": "served"})
    write_export(config)
    return config


def outcome() -> str:
    """Of the task, outside a flow."""
    with disable_run_logger():
        return publish.fn()


def test_a_version_is_published_once(promoted: Config) -> None:
    assert [outcome(), outcome()] == ["ran", "up to date"]
    assert Path("served", "current").readlink() == Path("1")


def test_a_model_that_is_not_to_be_promoted_is_refused_and_stops_no_flow(promoted: Config) -> None:
    decide(promoted, promote=False)
    assert (outcome(), Path("served").exists()) == ("refused", False)


def test_a_missing_export_stops_the_flow(promoted: Config) -> None:
    promoted.paths.export.rename("away")
    with pytest.raises(StageFailed, match="publish ended with exit code 3"):
        outcome()
