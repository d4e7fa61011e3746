"""The report as a page, as a summary and as details."""

import PIL.Image
import pytest
from support import finished

from perennial.errors import DataError
from perennial.report.command import details, summary, write


@pytest.fixture
def run(load):
    """Parameters of a run with results."""
    checked = load()
    finished.leave(checked, ["cat", "dog", "owl"], each=2)
    return checked


def test_the_summary_gives_data_training_scores_and_decision(run):
    finished.change(run.paths.metrics, accuracy=0.98607, loss=0.05199)
    assert summary(run) == {
        "data set": "pets",
        "examples": "train 6, test 6",
        "epochs": 4,
        "stopped by": "epochs",
        "validation accuracy": 0.9,
        "test accuracy": 0.9861,
        "test loss": 0.052,
        "decision": "promoted: good; better",
        "model": "models/export",
        "report": "report.html",
    }


def test_the_decision_of_a_rejected_model(run):
    finished.change(run.paths.decision, promote=False, reasons=["bad"])
    assert summary(run)["decision"] == "rejected: bad"


def test_the_validation_accuracy_is_that_of_the_weights_that_were_kept(run):
    finished.change(run.paths.training, kept=20)
    assert summary(run)["validation accuracy"] == 0.8


@pytest.mark.parametrize("call", [summary, write])
def test_a_decision_on_another_model_is_refused(run, call):
    finished.change(run.paths.decision, candidate={"model": "another", "data": "another"})
    with pytest.raises(DataError, match="`dvc repro gate`"):
        call(run)
    assert not run.paths.report.exists()


@pytest.mark.parametrize("call", [summary, write])
def test_scores_of_another_training_are_refused(run, call):
    finished.change(run.paths.training, weights_sha256="another")
    with pytest.raises(DataError, match="`dvc repro evaluate`"):
        call(run)


def test_the_report_is_a_page_in_one_file(run):
    write(run)
    assert run.paths.report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_details_have_the_classes_and_the_existing_pictures(run):
    write(run)
    found = details(run)
    assert found["per_class"].keys() == {"cat", "dog", "owl"}
    assert found["pictures"].keys() == {"curves", "confusion", "reliability"}
    for file in found["pictures"].values():
        with PIL.Image.open(file) as picture:
            assert picture.format == "PNG"


def test_missing_pictures_are_left_out(run):
    run.paths.confusion_plot.unlink()
    for file in run.paths.curves.iterdir():
        file.unlink()
    write(run)
    assert details(run)["pictures"].keys() == {"reliability"}


def test_curves_of_an_earlier_run_are_removed(run):
    write(run)
    for file in run.paths.curves.iterdir():
        file.unlink()
    write(run)
    assert "curves" not in details(run)["pictures"]


@pytest.mark.parametrize("missing", ["training", "metrics", "decision"])
def test_a_stage_that_has_not_run_is_named_by_its_file(run, missing):
    file = getattr(run.paths, missing)
    file.unlink()
    with pytest.raises(DataError, match=f"{file} does not exist"):
        summary(run)


def test_no_report_is_written_before_every_stage_has_run(run):
    run.paths.metrics.unlink()
    with pytest.raises(DataError):
        write(run)
    assert not run.paths.report.exists()


def test_a_failed_report_says_that_the_existing_page_is_of_an_earlier_run(run):
    write(run)
    before = run.paths.report.read_bytes()
    run.paths.metrics.unlink()
    with pytest.raises(DataError, match=r"report\.html .*earlier run"):
        write(run)
    assert run.paths.report.read_bytes() == before
