"""What is read of a run, and what is said of what is not there."""

import dataclasses

import numpy as np
import pytest
from support import finished

from perennial import files
from perennial.errors import DataError
from perennial.evaluation import plots

OPTIONAL = {
    "validation": ("validation", "dvc repro validate"),
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


DAMAGED = {
    "empty": (b"", "has no lines yet"),
    "no lines": (b"step,loss,accuracy\n", "has no lines yet"),
    "a short line": (b"step,loss,accuracy\n1\n", "cannot be read"),
    "no text": (b"\xff\xfe", "cannot be read"),
    "no number": (b"step,loss,accuracy\n1,high,1\n", "cannot be read"),
    "no accuracy": (b"step,loss\n1,2\n", "has no column accuracy"),
    "too long": (b"step,loss,accuracy\n1,2," + b"3" * 200_000, "is no table"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_curve_is_said(config, gather, damage):
    content, said = DAMAGED[damage]
    (config.paths.curves / "validation.csv").write_bytes(content)
    found = gather()
    assert found.validation_curve is None
    assert f"validation.csv {said}" in found.missing["validation_curve"]


def test_a_column_that_nothing_shows_may_hold_anything(config, gather):
    (config.paths.curves / "validation.csv").write_text("epoch,step,loss,accuracy\nfirst,1,2,0.5\n")
    assert gather().validation_curve.keys() == {"step", "loss", "accuracy"}


def test_a_validation_with_other_facts_than_expected_is_said(config, gather):
    statistics = files.read_json(config.paths.validation)["statistics"]
    finished.change(config.paths.validation, statistics={**statistics, "height": ["low", "high"]})
    found = gather()
    assert (found.validation, "validation.json cannot be read" in found.missing["validation"]) == (None, True)


@pytest.mark.parametrize("content", [b"", b"actual\ncat\n"])
def test_a_damaged_file_of_predictions_is_said(config, gather, content):
    config.paths.predictions.write_bytes(content)
    assert str(config.paths.predictions) in gather().missing["answers"]


def test_answers_with_labels_that_are_no_classes_are_said(config, gather):
    answers = finished.leave(config, ["cat", "dog"])
    answers.labels[0] = 7
    answers.write(config.paths.predictions)
    found = gather()
    assert (found.matrix, found.reliability) == (None, None)
    assert str(config.paths.predictions) in found.missing["answers"]


@pytest.mark.parametrize("key", ["model", "data"])
def test_answers_of_something_else_are_not_told_as_these(config, gather, key):
    found = dataclasses.replace(finished.leave(config, ["cat", "dog"]), **{key: "another"})
    found.write(config.paths.predictions)
    told = gather()
    assert (told.answers, told.matrix, told.reliability) == (None, None, None)
    assert "is of another model or other data than the scores" in told.missing["answers"]


def test_scores_that_were_never_judged_give_no_report(config, gather):
    finished.change(config.paths.metrics, model="another")
    finished.change(config.paths.training, weights_sha256="another")
    with pytest.raises(DataError, match="`dvc repro gate`"):
        gather()


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
    counts = np.zeros((100, 100), np.int64)
    np.add.at(counts, (answers.labels, answers.probabilities.argmax(axis=1)), 1)
    places, names = plots.most_confused(counts, answers.classes)
    found = gather().matrix
    assert (found.names, found.names[-1]) == (tuple(names), "(71 others)")
    assert found.counts.tolist() == plots.grouped(counts, places).tolist()
