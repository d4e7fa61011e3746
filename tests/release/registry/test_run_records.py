"""Records of runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.pipelines import Project

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError
from perennial.release.registry import run_records


@pytest.fixture
def config(load: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> Config:
    """Parameters of a folder in which the run `one` has started."""
    found = load()
    run_records.start(found, "one", {"reason": "new images"})
    monkeypatch.setenv(run_records.RUN, "one")
    return found


def record(config: Config, run: str = "one") -> dict[str, Any]:
    return documents.read_json(run_records.record_file(config, run))


def test_a_run_is_recorded_from_its_start(config: Config) -> None:
    found = record(config)
    assert (found["outcome"], found["stages"], found["params"]["train"]["seed"]) == (None, [], 0)
    assert found["environment"]["packages"]["dvc"]
    assert found["request"] == {"reason": "new images"}


def test_stages_are_added_with_their_exit_code(config: Config) -> None:
    with run_records.stage(config, "download"):
        (begun,) = record(config)["stages"]  # which stays if the process is killed
        assert (begun["stage"], begun["ended"], begun["exit_code"]) == ("download", None, None)
    with pytest.raises(DataError), run_records.stage(config, "convert"):
        raise DataError("damaged")
    assert [(each["stage"], each["exit_code"]) for each in record(config)["stages"]] == [
        ("download", 0),
        ("convert", 3),
    ]


def test_a_stage_that_no_run_started_is_not_recorded(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run_records.RUN)
    with run_records.stage(config, "train"):
        pass
    assert record(config)["stages"] == []


def test_starting_again_after_a_crash_keeps_the_record(config: Config) -> None:
    before = record(config)
    run_records.end(config, "one", "Crashed", "its heartbeats stopped", {})
    run_records.start(config, "one")
    after = record(config)
    assert (len(after.pop("started_again")), after) == (1, {**before, "results": {}})


def test_runs_are_listed_with_the_newest_first_and_found_by_their_start(config: Config) -> None:
    run_records.start(config, "two")
    run_records.end(config, "two", "Completed", None, {"train": "ran"})
    assert [each["run"] for each in run_records.listing(config, 20)] == ["two", "one"]
    assert run_records.find(config, "tw")["results"] == {"train": "ran"}
    with pytest.raises(ConfigError):
        run_records.find(config, "three")


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "a..b", "a b"])
def test_a_name_that_no_branch_could_have_is_refused(config: Config, name: str) -> None:
    with pytest.raises(ConfigError):
        run_records.start(config, name)


def test_the_record_is_the_last_commit_of_the_run_s_branch_only(recorded_once: Project) -> None:
    recorded_once.git("fetch", "-q")
    pushed = json.loads(recorded_once.git("show", "origin/run/night-1:runs/night-1/run.json"))
    assert (pushed["run"], pushed["recorded"]) == ("night-1", "promoted")
    assert pushed["decision"] == {"promote": True, "accuracy": 0.8}
    assert recorded_once.git("rev-parse", "origin/run/night-1~") == recorded_once.git(
        "rev-parse", "classifier@v0.0.1^{}"
    )
    assert recorded_once.git("ls-tree", "main", "runs") == ""


def test_other_clones_see_the_record(recorded_once: Project) -> None:
    clone = recorded_once.clone("other")
    (listed,) = clone.perennial("runs")
    assert (listed["run"], clone.perennial("runs", "show", "night")["lock"]) == ("night-1", listed["lock"])
    assert clone.perennial("runs", "compare", "night-1", "night-1")["differences"] == []


def test_a_run_over_a_new_commit_is_not_recorded(recorded_once: Project, tmp_path: Path) -> None:
    copy = recorded_once.copied(tmp_path / "copy")
    copy.must("perennial", "runs", "start", "night-2")
    (copy.folder / "README.md").write_text("New\n")
    copy.git("add", ".")
    copy.git("commit", "-qm", "Readme")
    assert "when this run started" in copy.refused(1, "record", "night-2")
