"""The report: the last run in a few lines."""

import pytest

from perennial import files
from perennial.errors import DataError
from perennial.stages.convert import convert
from perennial.stages.report import report, summary


@pytest.fixture
def finished(small):
    """Parameters of a run that left its results."""
    convert(small)
    evaluations = [{"accuracy": 0.5}, {"accuracy": 0.98765}]
    training = {"epoch": 6, "stopped_by": "threshold", "evaluations": evaluations}
    files.write_json(small.paths.training, training)
    files.write_json(small.paths.metrics, {"accuracy": 0.98607, "loss": 0.05199})
    files.write_json(small.paths.decision, {"promote": True, "reasons": ["good", "better"]})
    return small


def test_the_summary_gives_data_training_scores_and_decision(finished):
    assert summary(finished) == {
        "data set": "mnist",
        "examples": "train 30, validation 10, test 20",
        "epochs": 6,
        "stopped by": "threshold",
        "validation accuracy": 0.9877,
        "test accuracy": 0.9861,
        "test loss": 0.052,
        "decision": "promoted: good; better",
        "model": "models/export",
    }


def test_a_rejection_is_called_one(finished):
    files.write_json(finished.paths.decision, {"promote": False, "reasons": ["bad"]})
    assert summary(finished)["decision"] == "rejected: bad"


def test_the_report_has_a_line_a_fact(finished):
    report(finished)
    lines = finished.paths.report.read_text().splitlines()
    assert [line for line in lines if line.startswith("| t")] == [
        "| test accuracy | 0.9861 |",
        "| test loss | 0.052 |",
    ]


@pytest.mark.parametrize("missing", ["training", "metrics", "decision"])
def test_a_stage_that_has_not_run_is_told_by_its_file(finished, missing):
    file = getattr(finished.paths, missing)
    file.unlink()
    with pytest.raises(DataError, match=f"{file} does not exist"):
        summary(finished)


def test_no_report_is_written_before_every_stage_has_run(finished):
    finished.paths.metrics.unlink()
    with pytest.raises(DataError):
        report(finished)
    assert not finished.paths.report.exists()
