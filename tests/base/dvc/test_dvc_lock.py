"""What dvc.lock records, also where it is no valid one."""

from pathlib import Path

import pytest

from perennial.base.dvc import dvc_lock
from perennial.base.dvc.dvc_lock import Size
from perennial.base.errors import DataError

TEXT = Path(__file__).with_name("dvc.lock.txt").read_text(encoding="utf-8")
STAGES = dvc_lock.parse(TEXT, "dvc.lock")
INVALID = [
    "", "[]", "stages: {train: []}", "stages: {train: {deps: [1]}}", "{", "<<<<<<< HEAD", "\0",
    "stages: {train: {params: &own {params.yaml: *own}}}", "stages: !!bool other", "[" * 5000,
]  # fmt: skip


def test_values_are_named_by_file_and_key() -> None:
    assert STAGES["train"].params == {
        ("params.yaml", "train.epochs"): 3,
        ("params.yaml", "model.weights"): None,
        ("data/report.json", "ok"): True,
    }


def test_stages_are_ordered_by_what_they_read() -> None:
    assert dvc_lock.ordered(STAGES) == ["convert", "train", "gate"]


@pytest.mark.parametrize(("values", "deciding"), [(True, ["convert", "gate"]), (False, ["gate"])])
def test_the_stages_above_an_output_are_those_that_it_is_made_by(values: bool, deciding: list[str]) -> None:
    assert dvc_lock.above(STAGES, "models/weights/part", values=values) == ["convert", "train"]
    assert dvc_lock.above(STAGES, "decision.json", values=values) == deciding
    assert dvc_lock.above(STAGES, "elsewhere", values=values) == []


def test_outputs_are_found_by_path_in_any_notation() -> None:
    weights, report = Path("models/weights"), "data/report.json"
    assert (dvc_lock.digest(STAGES, weights), dvc_lock.size(STAGES, weights)) == ("d4.dir", Size(12, 3))
    assert (dvc_lock.digest(STAGES, report), dvc_lock.size(STAGES, report)) == ("f6", Size(7, 1))
    assert (dvc_lock.digest(STAGES, "src/code"), dvc_lock.size(STAGES, "data/records")) == (None, None)


def test_sources_are_what_no_stage_writes() -> None:
    # A file in the folder that another stage writes has a path of its own.
    assert dvc_lock.sources(STAGES) == ["data/records/labels.txt", "src/code"]


@pytest.mark.parametrize("text", INVALID)
def test_what_is_no_lock_is_refused_or_records_nothing(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"it is not a dvc\.lock"):
        dvc_lock.parse(text, "it")
    assert dvc_lock.here(tmp_path) == dvc_lock.entries(None) == {}
    (tmp_path / dvc_lock.FILE).write_text(text)
    assert dvc_lock.here(tmp_path) == dvc_lock.entries(text) == {}
