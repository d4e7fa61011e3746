"""What Prefect shows of a run."""

from datetime import UTC, datetime

import pytest

from perennial.orchestration.engine import this_run
from perennial.orchestration.engine.this_run import LocalRun
from perennial.orchestration.steps.artifacts import CLASSES, markdown, retrain_run_name, run_name
from perennial.orchestration.terminal.view import progress

START = datetime(2026, 11, 22, 2, tzinfo=UTC)
FACTS = {"data set": "pets", "decision": "passed the gate: good; better", "report": "report.html"}
SCORES = {"examples": 9, "precision": 0.98765, "recall": 0.5, "f1": None}


def test_the_decision_is_the_heading_and_the_rest_a_table() -> None:
    table = "| fact |  |\n| --- | --- |\n| data set | pets |\n| report | report.html |\n"
    assert markdown(FACTS, {}) == f"# Passed the gate\ngood; better\n\n{table}"


def test_the_class_with_the_lowest_recall_comes_first() -> None:
    per_class = {"cat": {**SCORES, "recall": 1.0}, "owl": {**SCORES, "recall": None}, "dog": SCORES}
    rows = [line for line in markdown(FACTS, per_class).splitlines() if line.startswith(("| c", "| d", "| o"))]
    assert rows[1:] == [
        "| class | examples | precision | recall | f1 |",
        "| dog | 9 | 0.9877 | 0.5 | - |",
        "| cat | 9 | 0.9877 | 1.0 | - |",
        "| owl | 9 | 0.9877 | - | - |",
    ]


def test_of_many_classes_the_worst_are_listed_and_the_rest_counted() -> None:
    text = markdown(FACTS, {f"class {number}": SCORES for number in range(CLASSES + 3)})
    assert (text.count("| class "), text.splitlines()[-1]) == (CLASSES + 1, "3 more in `report.html`")


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("<b>|`\n# x", r"\<b\>\|\` \# x"),
        ("![x](https://e.example/p.png)", r"\!\[x\]\(https://e.example/p.png\)"),
        ("*a*", r"\*a\*"),
        ("__a__ ~~b~~", r"\_\_a\_\_ \~\~b\~\~"),
        ("\\|&lt;", r"\\\|\&lt;"),
    ],
)
def test_markup_in_a_class_name_is_escaped(name: str, cell: str) -> None:
    (row,) = (line for line in markdown(FACTS, {name: SCORES}).splitlines() if "0.9877" in line)
    assert row == f"| {cell} | 9 | 0.9877 | 0.5 | - |"


def test_the_progress_of_a_training_is_a_percentage_and_a_line() -> None:
    known = {"accuracy": 0.91234, "examples_per_second": 5123.4, "seconds_left": 90.2}
    place = {"epoch": 3, "epochs": 30, "step": 36, "steps": 390}
    assert progress(place | known) == (9.2, "epoch 3 of 30, accuracy 0.9123, 01:30 left, 5,123 examples/s")
    assert progress(place | dict.fromkeys(known)) == (9.2, "epoch 3 of 30")
    none = dict.fromkeys(("epoch", "epochs", "step", "steps"), 0)
    assert progress(none | dict.fromkeys(known)) == (100.0, "epoch 0 of 0")


@pytest.mark.parametrize(
    ("reason", "deployment", "why"),
    [
        ("new images", "nightly", "new images"),
        (None, "nightly", "nightly"),
        (None, None, "by hand"),
        ("new " * 30, "nightly", "new " * 14 + "..."),
    ],
)
def test_the_name_of_a_run_says_pipeline_date_and_reason(reason, deployment, why, monkeypatch) -> None:
    monkeypatch.setattr(this_run, "deployment", lambda: deployment)
    given = {"pipeline": "classifier", "reason": reason}
    with this_run.local(LocalRun(flow="retrain", parameters=given, start=START)):
        assert retrain_run_name() == f"classifier 2026-11-22 02:00, {why}"


def test_the_name_of_a_run_of_a_further_pipeline_begins_with_its_folder(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "pipelines" / "birds"
    folder.mkdir(parents=True)
    (tmp_path / "flows").mkdir()
    for name in ("params.yaml", "dvc.yaml"):
        (folder / name).touch()
    monkeypatch.chdir(folder)
    with this_run.local(LocalRun(flow="monitor", parameters={}, start=START)):
        assert run_name("monitor") == "birds monitor 2026-11-22 02:00"
