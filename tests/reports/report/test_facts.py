"""Facts of a run, and reasons for missing parts."""

import dataclasses

import pytest
from support import finished

from perennial.base import documents, files


def test_everything_that_a_run_leaves_is_read(collect):
    found = collect()
    assert found.missing == {}
    assert (found.data.classes, len(found.test.predictions.labels)) == (["cat", "dog", "owl"], 18)
    assert (found.test.matrix.names, found.test.matrix.counts.sum()) == (("cat", "dog", "owl"), 18)
    assert (len(found.training_curve["loss"]), len(found.validation_curve["accuracy"])) == (40, 4)


@pytest.mark.parametrize(
    ("part", "path", "stage"),
    [
        ("validation", "validation", "validate"),
        ("test", "predictions", "evaluate"),
        ("training_curve", "curves/training.csv", "train"),
        ("validation_curve", "curves/validation.csv", "train"),
    ],
)
def test_a_missing_part_is_named_with_the_command_that_makes_it(config, collect, part, path, stage):
    name, *below = path.split("/")
    file = getattr(config.paths, name).joinpath(*below)
    file.unlink()
    found = collect()
    assert (getattr(found, part), list(found.missing)) == (None, [part])
    assert f"{file} does not exist" in found.missing[part]
    assert f"dvc repro {stage}" in found.missing[part]


DAMAGED = {
    "empty": (b"", "no lines"),
    "no lines": (b"step,loss,accuracy\n", "no lines"),
    "a short line": (b"step,loss,accuracy\n1\n", "cannot be read"),
    "no text": (b"\xff\xfe", "cannot be read"),
    "no number": (b"step,loss,accuracy\n1,high,1\n", "cannot be read"),
    "no accuracy": (b"step,loss\n1,2\n", "accuracy"),
    "a huge number": (b"step,loss,accuracy\n1,2," + b"3" * 1000, "not finite"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_curve_is_named(config, collect, damage):
    content, word = DAMAGED[damage]
    (config.paths.curves / "validation.csv").write_bytes(content)
    found = collect()
    assert found.validation_curve is None
    assert "validation.csv" in found.missing["validation_curve"]
    assert word in found.missing["validation_curve"]


def test_a_validation_with_unexpected_statistics_is_named(config, collect):
    statistics = documents.read_json(config.paths.validation)["statistics"]
    finished.change(config.paths.validation, statistics={**statistics, "height": ["low", "high"]})
    found = collect()
    assert (found.validation, "validation.json cannot be read" in found.missing["validation"]) == (None, True)


@pytest.mark.parametrize("content", [b"", b"actual\ncat\n"])
def test_a_damaged_file_of_predictions_is_named(config, collect, content):
    config.paths.predictions.write_bytes(content)
    assert str(config.paths.predictions) in collect().missing["test"]


def test_predictions_with_invalid_labels_are_named(config, collect):
    predictions = finished.leave(config, ["cat", "dog"])
    predictions.labels[0] = 7
    predictions.write(config.paths.predictions)
    found = collect()
    assert found.test is None
    assert str(config.paths.predictions) in found.missing["test"]


@pytest.mark.parametrize("key", ["model", "data"])
def test_predictions_of_another_model_or_other_data_are_not_used(config, collect, key):
    found = dataclasses.replace(finished.leave(config, ["cat", "dog"]), **{key: "another"})
    found.write(config.paths.predictions)
    collected = collect()
    assert collected.test is None
    assert "another model" in collected.missing["test"]


def test_a_validation_of_other_data_is_not_used(config, collect):
    written = documents.read_json(config.paths.validation)
    written["statistics"]["manifest"] = "another"
    files.write_json(config.paths.validation, written)
    assert "other data" in collect().missing["validation"]


@pytest.mark.parametrize("content", ["{}", "[]", '{"seconds": null}', "{"])
def test_a_time_that_cannot_be_read_is_left_out(config, collect, content):
    (config.paths.work / "timings" / "train.json").write_text(content)
    assert "train" not in collect().seconds
