"""What is read of a run, and what is said of what is not there."""

import numpy as np
import pytest
from support import finished

from perennial import files
from perennial.errors import DataError

OPTIONAL = {
    "validation": ("validation", "dvc repro validate"),
    "matrix": ("confusion", "dvc repro evaluate"),
    "reliability": ("reliability", "dvc repro evaluate"),
    "answers": ("predictions", "dvc repro evaluate"),
}


def test_everything_that_a_run_leaves_is_read(gather):
    found = gather()
    assert found.missing == {}
    assert (found.data.classes, len(found.answers.labels)) == (["cat", "dog", "owl"], 18)
    assert (found.matrix.names, found.matrix.counts.sum()) == (("cat", "dog", "owl"), 18)
    assert (len(found.training_curve["loss"]), len(found.validation_curve["accuracy"])) == (40, 4)


def test_the_slowest_stage_comes_first(gather):
    assert list(gather().seconds) == ["train", "evaluate", "export", "validate", "convert", "download"]


@pytest.mark.parametrize("part", OPTIONAL)
def test_a_part_that_is_not_there_is_said_with_what_makes_it(config, gather, part):
    name, command = OPTIONAL[part]
    file = getattr(config.paths, name)
    file.unlink()
    found = gather()
    assert (getattr(found, part), list(found.missing)) == (None, [part])
    assert f"{file} does not exist; `{command}` makes it" in found.missing[part]


@pytest.mark.parametrize("curve", ["training", "validation"])
def test_a_curve_that_is_not_there_is_said(config, gather, curve):
    (config.paths.curves / f"{curve}.csv").unlink()
    assert "dvc repro train" in gather().missing[f"{curve}_curve"]


@pytest.mark.parametrize("content", [b"", b"step,loss\n", b"step,loss\n1\n", b"\xff\xfe", b"loss\nhigh\n"])
def test_a_damaged_curve_is_said(config, gather, content):
    (config.paths.curves / "validation.csv").write_bytes(content)
    found = gather()
    assert found.validation_curve is None
    assert "validation.csv" in found.missing["validation_curve"]


@pytest.mark.parametrize("content", [b"", b"actual\ncat\n"])
def test_a_damaged_file_of_predictions_is_said(config, gather, content):
    config.paths.predictions.write_bytes(content)
    assert str(config.paths.predictions) in gather().missing["answers"]


def test_a_confusion_matrix_without_a_column_is_said(config, gather):
    config.paths.confusion.write_text("actual\ncat\n")
    assert str(config.paths.confusion) in gather().missing["matrix"]


def test_answers_of_another_model_are_not_told_as_this_one_s(config, gather):
    metrics = files.read_json(config.paths.metrics)
    files.write_json(config.paths.metrics, {**metrics, "model": "another"})
    found = gather()
    assert (found.answers, "another model" in found.missing["answers"]) == (None, True)


def test_a_validation_of_other_data_is_not_told_as_this_one_s(config, gather):
    written = files.read_json(config.paths.validation)
    written["statistics"]["manifest"] = "another"
    files.write_json(config.paths.validation, written)
    assert "other data" in gather().missing["validation"]


@pytest.mark.parametrize("content", ["{}", "[]", '{"seconds": null}', "{"])
def test_a_time_that_cannot_be_read_is_left_out(config, gather, content):
    (config.paths.work / "timings" / "train.json").write_text(content)
    assert "train" not in gather().seconds


@pytest.mark.parametrize("file", ["training", "metrics", "decision"])
def test_without_a_result_of_the_run_there_is_no_report(config, gather, file):
    getattr(config.paths, file).unlink()
    with pytest.raises(DataError, match=f"{file}.json does not exist; `dvc repro` makes it"):
        gather()


def test_of_many_classes_the_rest_has_one_place(config, gather):
    answers = finished.leave(config, [f"class {label}" for label in range(100)], each=2)
    found = gather().matrix
    assert (len(found.names), found.names[-1]) == (30, "(71 others)")
    assert (found.counts.sum(), np.trace(found.counts)) == (
        200,
        pytest.approx((answers.probabilities.argmax(axis=1) == answers.labels).sum(), abs=15),
    )
