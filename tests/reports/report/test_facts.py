"""Facts of a run, and reasons for missing parts."""

import dataclasses

import numpy as np
import pytest
from support import finished

from perennial.base import documents


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


def statistics(config, **values):
    known = documents.read_json(config.paths.validation)["statistics"]
    finished.change(config.paths.validation, statistics={**known, **values})


def content(config, text):
    config.paths.predictions.write_bytes(text)


def scored(config, **values):
    """Predictions of two classes, some facts of them changed."""
    dataclasses.replace(finished.leave(config, ["cat", "dog"]), **values).write(config.paths.predictions)


SPOILT = {
    "unexpected statistics": (
        statistics,
        {"height": ["low", "high"]},
        "validation",
        "validation.json cannot be",
    ),
    "a validation of other data": (statistics, {"manifest": "another"}, "validation", "other data"),
    "an empty file": (content, {"text": b""}, "test", "predictions.npz"),
    "a CSV file": (content, {"text": b"actual\ncat\n"}, "test", "predictions.npz"),
    "invalid labels": (scored, {"labels": np.arange(12)}, "test", "predictions.npz"),
    "of another model": (scored, {"model": "another"}, "test", "another model"),
    "of other data": (scored, {"data": "another"}, "test", "another model or other data"),
}


@pytest.mark.parametrize(("spoil", "values", "part", "said"), SPOILT.values(), ids=SPOILT)
def test_a_part_that_is_damaged_or_of_another_run_is_named_and_not_used(
    config, collect, spoil, values, part, said
):
    spoil(config, **values)
    found = collect()
    assert (getattr(found, part), said in found.missing[part]) == (None, True), found.missing


@pytest.mark.parametrize("content", ["{}", "[]", '{"seconds": null}', "{"])
def test_a_time_that_cannot_be_read_is_left_out(config, collect, content):
    (config.paths.work / "timings" / "train.json").write_text(content)
    assert "train" not in collect().seconds
