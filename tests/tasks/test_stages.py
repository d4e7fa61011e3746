"""The tasks of a flow: which failures are retried, and publishing."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect import Task
from prefect.logging import disable_run_logger
from prefect.states import Failed
from prefect.task_engine import TaskRunTimeoutError
from support.exports import decide, write_export
from support.tasks import write_pipeline

from perennial.base.config import Config
from perennial.base.errors import Failure
from perennial.base.project.stages import STAGES
from perennial.orchestration.work.stage_failures import InputsChanged, NotStarted, StageFailed
from tasks import stages, steps
from tasks.policy import worth_retrying
from tasks.stages import publish


def retried(error: Exception) -> bool:
    return asyncio.run(worth_retrying(None, None, Failed(data=error)))


@pytest.mark.parametrize(("code", "expected"), [(1, True), (2, False), (3, False), (4, False), (75, True)])
def test_what_a_person_must_change_first_is_not_retried(code: int, *, expected: bool) -> None:
    assert retried(StageFailed("train", code, "message")) is expected


@pytest.mark.parametrize("error", [NotStarted("train", 1, "message"), InputsChanged("train", 75, "message")])
def test_what_dvc_refuses_and_inputs_that_changed_are_not_retried(error: Exception) -> None:
    assert retried(error) is False


@pytest.mark.parametrize("kind", Failure)
def test_of_the_kinds_of_failures_those_are_retried_that_may_pass(kind: Failure) -> None:
    passing = {Failure.NETWORK, Failure.DISK, Failure.INTERRUPTED, Failure.OUTSIDE}
    assert retried(StageFailed("train", 1, "message", kind)) is (kind in passing)


@pytest.mark.parametrize(
    ("error", "expected"), [(KeyError("x"), False), (ConnectionResetError(), True), (OSError(28, "full"), True)]
)
def test_a_bug_of_a_task_itself_is_not_retried(error: Exception, *, expected: bool) -> None:
    assert retried(error) is expected


def test_a_stage_that_hit_its_time_limit_is_never_retried() -> None:
    assert retried(TaskRunTimeoutError()) is False


@pytest.mark.parametrize(
    "task",
    [
        *(getattr(stages, name) for name in (*STAGES, "publish")),
        steps.record,
        steps.decide,
        steps.start_retraining,
        steps.find_champion,
    ],
    ids=lambda task: task.name,
)
def test_every_task_is_retried_alike(task: Task[..., object]) -> None:
    assert (task.retries, task.retry_delay_seconds, task.retry_condition_fn) == (2, [10, 60], worth_retrying)


@pytest.fixture
def promoted(load: Callable[..., Config]) -> Config:
    """Parameters with a promoted export and a folder to publish to."""
    config = load(**{"publish.url": "served"})
    write_export(config)
    return config


def result() -> str:
    """Of the task, outside a flow."""
    with disable_run_logger():
        return publish.fn({})["publish"]


def test_stages_are_unchanged_until_one_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_pipeline(tmp_path, "open('out', 'w')", deps=["stage.py"], outs=["out"]))
    with disable_run_logger():
        assert stages.find_unchanged.fn({}) == {}
        stages.train.fn({})
        assert stages.find_unchanged.fn({}) == {"train": "up to date"}
        Path("stage.py").write_text("open('out', 'x')")
        assert stages.find_unchanged.fn({}) == {}


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
