"""The report as a page, as a summary and as details."""

from pathlib import Path

import PIL.Image
import pytest
from support import finished, pipelines
from support.git import git

from perennial.base import config
from perennial.base.errors import DataError
from perennial.reports.report.report_page import write
from perennial.reports.report.summary import _champion, details, summary

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def run(load):
    """Parameters of a run with results."""
    checked = load()
    finished.leave(checked, ["cat", "dog", "owl"], each=2)
    return checked


def test_the_summary_gives_data_training_scores_and_decision_and_follows_them(run):
    finished.change(run.paths.metrics, accuracy=0.98607, loss=0.05199)
    assert summary(run) == {
        "data set": "pets", "examples": "train 6, test 6", "epochs": 4, "stopped by": "epochs",
        "validation accuracy": 0.9, "test accuracy": 0.9861, "test loss": 0.052,
        "decision": "passed the gate: good; better", "model": "models/export", "report": "report.html",
    }  # fmt: skip
    finished.change(run.paths.decision, promote=False, reasons=["bad"])
    finished.change(run.paths.training, kept=20)
    found = summary(run)
    assert (found["decision"], found["validation accuracy"]) == ("rejected: bad", 0.8)


def test_the_summary_compares_both_models_on_labelled_images_of_traffic(run):
    scores = {"examples": 45, "accuracy": 0.86667, "low": 0.74, "high": 0.94}
    finished.change(run.paths.metrics, slices={"traffic": {"random": scores}})
    assert summary(run)["traffic"] == "0.8667 on 45 labelled images of the test split"
    group = {"name": "traffic: random", "champion": 0.68889, "won": 10, "lost": 2}
    champion = {"version": "v0.0.1", "accuracy": 0.9}
    finished.change(run.paths.decision, champion=champion, comparison={"slices": [group], "won": 12, "lost": 2})
    assert summary(run)["traffic"].endswith("; v0.0.1 has 0.6889: 10 won, 2 lost")
    assert "flips" not in summary(run)  # an earlier program made this decision
    ends = {"negative_flips": 0.008, "negative_flips_low": 0.00097, "negative_flips_high": 0.0286}
    finished.change(run.paths.decision, champion=champion, comparison={"won": 12, "lost": 2, **ends})
    assert summary(run)["flips"] == "2 negative (0.80 %; 95 %: 0.10 to 2.86), 12 positive"


CHAMPIONS = {
    "none": "none yet; `perennial promote` makes it this model",
    "another": "v0.0.1; `perennial promote` makes it this model",
    "this": "v0.0.1, which is this model",
}


@pytest.mark.fast_rows("another")
@pytest.mark.parametrize("champion", CHAMPIONS)
def test_the_summary_says_which_model_is_champion(champion, tmp_path_factory, monkeypatch):
    project = pipelines.make(tmp_path_factory.mktemp("summary") / "base")
    if champion != "none":
        project.perennial("record", "night-1")
    if champion == "another":
        project.data("0.9 second")
        project.reproduce()
    monkeypatch.chdir(project.folder)
    assert _champion(config.load(Path("params.yaml")), passed=True) == {"champion": CHAMPIONS[champion]}


def test_a_model_that_did_not_pass_or_waits_for_a_person_is_not_offered(load, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert _champion(load(), passed=True) == {}  # without git
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    assert _champion(load(), passed=False) == {"champion": "none yet"}
    waits = load(**{"gate.approval": True})
    assert _champion(waits, passed=True) == {"champion": "none yet; a person has to approve this model"}


@pytest.mark.parametrize("call", [summary, write])
def test_results_of_several_models_are_refused(run, call):
    finished.change(run.paths.training, weights_sha256="another")
    with pytest.raises(DataError, match="`dvc repro evaluate`"):
        call(run)
    assert not run.paths.report.exists()


def test_a_written_report_is_a_page_and_the_pictures_that_are_there(run):
    write(run)
    assert run.paths.report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    found = details(run)
    assert found["per_class"].keys() == {"cat", "dog", "owl"}
    assert found["pictures"].keys() == {"curves", "confusion", "reliability"}
    for file in found["pictures"].values():
        with PIL.Image.open(file) as picture:
            assert picture.format == "PNG"
    run.paths.confusion_plot.unlink()
    for file in run.paths.curves.iterdir():
        file.unlink()
    write(run)  # the curves of an earlier run are removed
    assert details(run)["pictures"].keys() == {"reliability"}


def test_a_failed_report_says_that_the_existing_page_is_of_an_earlier_run(run):
    write(run)
    before = run.paths.report.read_bytes()
    run.paths.metrics.unlink()
    with pytest.raises(DataError, match=r"report\.html .*earlier run"):
        write(run)
    assert run.paths.report.read_bytes() == before
