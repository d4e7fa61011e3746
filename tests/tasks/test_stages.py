"""The tasks of a flow: which failures are retried, and publishing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.exports import decide, write_export
from support.tasks import write_pipeline

from perennial.base.config import Config
from perennial.base.errors import Failure
from perennial.orchestration.work.stage_failures import StageFailed
from tasks import stages
from tasks.policy import is_worth_retrying
from tasks.stages import publish


@pytest.mark.parametrize(("code", "expected"), [(1, True), (2, False), (3, False), (4, False), (75, True)])
def test_what_a_person_must_change_first_is_not_retried(code: int, *, expected: bool) -> None:
    assert is_worth_retrying(StageFailed("train", code, "message")) is expected


@pytest.mark.parametrize("kind", Failure)
def test_of_the_kinds_of_failures_those_are_retried_that_may_pass(kind: Failure) -> None:
    passing = {Failure.NETWORK, Failure.DISK, Failure.INTERRUPTED, Failure.OUTSIDE}
    assert is_worth_retrying(StageFailed("train", 1, "message", kind)) is (kind in passing)


@pytest.mark.parametrize(
    ("error", "expected"), [(KeyError("x"), False), (ConnectionResetError(), True), (OSError(28, "full"), True)]
)
def test_a_bug_of_a_task_itself_is_not_retried(error: Exception, *, expected: bool) -> None:
    assert is_worth_retrying(error) is expected


@pytest.fixture
def promoted(load: Callable[..., Config]) -> Config:
    """Parameters with a promoted export and a folder to publish to."""
    config = load(**{"publish.url": "served"})
    write_export(config)
    return config


def result() -> str:
    """Of the task, outside a flow."""
    return publish({})["publish"]


def test_stages_are_unchanged_until_one_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_pipeline(tmp_path, "open('out', 'w')", deps=["stage.py"], outs=["out"]))
    assert stages.find_unchanged({}) == {}
    stages.train({})
    assert stages.find_unchanged({}) == {"train": "up to date"}
    Path("stage.py").write_text("open('out', 'x')")
    assert stages.find_unchanged({}) == {}


def test_a_version_is_published_once(promoted: Config) -> None:
    assert [result(), result()] == ["ran", "up to date"]
    assert Path("served", "current").readlink() == Path("1")


def test_a_rejected_model_is_refused_without_a_failure(promoted: Config) -> None:
    decide(promoted, promote=False)
    assert (result(), Path("served").exists()) == ("refused", False)


def test_a_missing_export_stops_the_flow(promoted: Config) -> None:
    promoted.paths.export.rename("away")
    with pytest.raises(StageFailed, match="publish ended with exit code 3"):
        result()
