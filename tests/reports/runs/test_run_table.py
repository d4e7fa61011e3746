"""Runs as a table in a terminal."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from reports.runs.conftest import Record
from support.git import IDENTITY

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.errors import ConfigError
from perennial.base.project.git import Repository
from perennial.model.evaluation import intervals
from perennial.release.registry import run_records
from perennial.reports.runs import run_table

FAILED = [{"stage": "train", "exit_code": 0}, {"stage": "evaluate", "exit_code": 3}]
CRASHED = [{"stage": "train", "exit_code": 1}]
RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "passed": ({}, "passed"),
    "promoted": ({"recorded": "promoted"}, "promoted"),
    "rejected": ({"recorded": "not promoted"}, "rejected"),
    "not recorded": ({"decision": {"promote": False, "accuracy": 0.5}}, "rejected"),
    "waiting": ({"recorded": "waiting"}, "waits for approval"),
    "bad data": ({"outcome": "Failed", "stages": FAILED, "decision": None}, "failed: wrong data"),
    "a bug": ({"outcome": "Failed", "stages": CRASHED, "decision": None}, "failed: in train"),
    "cancelled": ({"outcome": "Cancelled", "decision": None}, "failed: cancelled"),
    "publish failed": ({"outcome": "Failed", "recorded": "promoted"}, "promoted, then failed"),
    "killed": ({"outcome": None, "stages": CRASHED}, "not ended: train"),
    "started": ({"outcome": None}, "started"),
    "no decision": ({"decision": None}, "completed"),
}


def listed(config: Config, width: int = 80) -> list[str]:
    found = run_records.listing(config, 20)
    return list(run_table.lines(run_table.rows(config, found), width))


def test_a_persons_own_images_are_called_what_the_project_is_called(config: Config, record: Record) -> None:
    params = {"dataset": {"name": "image_folder"}, "record": {"artifact": "pets"}}
    (row,) = run_table.rows(config, [record("night-2", params=params)])
    assert row.data_set == "pets (image_folder)"


def test_a_run_that_ended_has_its_score_with_the_interval_of_the_report_and_its_time(config: Config) -> None:
    metrics = documents.read_json(config.paths.metrics)
    (row,) = run_table.rows(config, run_records.listing(config, 20))
    right = round(metrics["accuracy"] * metrics["examples"])
    assert row.accuracy == metrics["accuracy"]
    assert (row.low, row.high) == intervals.share(right, metrics["examples"])
    assert (row.data_set, row.model, row.result) == ("digits", "mnist_cnn", "passed")
    assert (row.seconds or 0) > 0


def test_runs_with_several_labels_an_image_have_their_mean_average_precision(config, record) -> None:
    of_labels = record("night-2", scores=None, decision={"promote": False, "map": 0.625})
    (row,) = found = run_table.rows(config, [of_labels])
    assert (row.accuracy, row.score, run_table.score_name(found)) == (None, 0.625, "mAP")
    lines = run_table.lines(run_table.rows(config, [of_labels, record("night-3")]), 80)
    (both,) = [line for line in lines if "SCORE, 95 %" in line]
    assert "ACCURACY" not in both


@pytest.mark.parametrize(("changes", "result"), RESULTS.values(), ids=RESULTS)
def test_the_result_says_in_a_few_words_what_became_of_a_run(config, record, changes, result) -> None:
    (row,) = run_table.rows(config, [record("night-2", **changes)])
    assert row.result == result
    assert len(result.split()) <= 4


def test_names_are_cut_to_starts_which_no_other_run_has(config: Config, record: Record) -> None:
    names = ["2ef82487-977c-491d-9c2a-b256fbc2b079", "2ef82487-9fff-491d-9c2a-b256fbc2b079", "night-10"]
    for name in names:
        record(name)
    rows = run_table.rows(config, run_records.listing(config, 20))
    assert {row.short for row in rows} == {"2ef82487-97", "2ef82487-9f", "night-10", "night-1"}
    assert [run_records.find(config, row.short)["run"] for row in rows] == [row.run for row in rows]
    with pytest.raises(ConfigError, match="2 runs start with"):
        run_records.find(config, "2ef8")


def test_the_table_fits_80_columns_whatever_it_shows(config: Config, record: Record) -> None:
    long = {
        "dataset": {"name": "photographs of birds in gardens"},
        "model": {"name": "mobilenet_v3_large_minimal"},
    }
    record("2ef82487-977c-491d-9c2a-b256fbc2b079", params=long, outcome="Failed", recorded="promoted")
    lines = listed(config)
    assert max(map(len, lines)) <= 80
    assert {line.split("  ")[0] for line in lines} == {"RUN", "2ef82487", "night-1"}
    assert any("…" in line for line in lines)


def test_what_all_runs_share_is_said_once(config: Config, record: Record) -> None:
    record("night-2", params={"dataset": {"name": "digits"}, "model": {"name": "lenet"}})
    first, _, head, *rows = listed(config)
    assert (first, "MODEL" in head, "DATA SET" in head) == ("All of digits:", True, False)
    assert {name for row in rows for name in ("lenet", "mnist_cnn") if name in row} == {"lenet", "mnist_cnn"}


def test_a_record_of_an_earlier_version_is_listed_without_what_it_lacks(config: Config, record: Record) -> None:
    old = record("night-0", scores=None, started="2025-11-24T02:00:00.000+00:00", ended=None, params=None)
    (row,) = run_table.rows(config, [old])
    assert (row.accuracy, row.low, row.seconds, row.model) == (old["decision"]["accuracy"], None, None, "-")
    line = next(each for each in listed(config) if each.startswith("night-0"))
    assert re.split(r"  +", line)[1] == "24 Nov 2025"
    assert "(" not in line


def test_times_and_parameters_that_are_none_do_not_keep_a_run_from_the_table(config, record) -> None:
    record("night-2", started="yesterday", ended="9" * 40, params=["?"], started_again=["?"])
    (row, _) = run_table.rows(config, run_records.listing(config, 20))
    assert (row.run, row.started, row.seconds) == ("night-2", None, None)
    assert listed(config)


def test_a_model_that_a_person_promoted_is_the_version_of_its_run(config: Config) -> None:
    (found,) = run_records.listing(config, 20)
    git = Repository(Path())
    git.run("init", "-q", "-b", "main")
    git.run(*IDENTITY, "commit", "-q", "--allow-empty", "-m", "Start")
    for number, facts in enumerate(({"run": "by-hand"}, {"run": "night-1", "model": "m"}), 1):
        text = json.dumps({"model": found["scores"]["model"], **facts})
        git.run(*IDENTITY, "tag", "-a", "-m", f"Version\n\n{text}", f"classifier@v0.0.{number}")
        (row,) = run_table.rows(config, [found])
        assert row.outcome == f"promoted v0.0.{number}"


def test_without_a_run_the_table_says_how_to_get_those_of_others(load: Any) -> None:
    assert "git fetch" in "".join(listed(load()))
