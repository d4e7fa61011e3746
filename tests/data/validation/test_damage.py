"""Whatever is wrong with records, manifest or baseline is refused by `validate` with a message."""

import contextlib
import json
import shutil

import pytest
from conftest import ROOT
from support import raw
from support.parameters import change_params

from perennial.base import documents, files
from perennial.base.config import load as load_config
from perennial.base.errors import DataError, PerennialError
from perennial.data.records import manifest
from perennial.stages.convert import convert
from perennial.stages.validate import validate

MNIST = {"dataset.name": "mnist", "dataset.validation_fraction": 0.25}
SHARD = "mnist_train_00000-of-00001.tfrecord"


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A folder with valid records: 30 examples to train on, 10 to validate and 20 to test."""
    folder = tmp_path_factory.mktemp("converted")
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(folder / "params.yaml", MNIST)
    with contextlib.chdir(folder):
        config = load_config(folder / "params.yaml")
        raw.write_mnist(config)
        convert(config)
    return folder


@pytest.fixture
def valid(load, converted, workspace):
    """Parameters with those records, in a copy of the folder."""
    shutil.copytree(converted, workspace, dirs_exist_ok=True)
    return load(**MNIST)


def outcome(config):
    """The error that a person sees; none if the records pass."""
    try:
        validate(config)
    except PerennialError as error:
        return error
    return None


def without(key, *more):
    def change(value):
        part = value
        for name in (key, *more)[:-1]:
            part = part[name]
        del part[(key, *more)[-1]]

    return change


MANIFESTS = {
    "no train": without("splits", "train"),
    "no splits": lambda value: value["splits"].clear(),
    "no classes": lambda value: value["classes"].clear(),
    "fewer classes": lambda value: value["classes"].pop(),
    "more classes": lambda value: value["classes"].append("more"),
    "equal classes": lambda value: value.update(classes=["same"] * 10),
    "fewer counts": lambda value: value["splits"]["train"]["per_class"].pop(),
    "no counts": lambda value: value["splits"]["train"]["per_class"].clear(),
    "counts below zero": lambda value: value["splits"]["train"].update(per_class=[-3] * 10),
    "huge counts": lambda value: value["splits"]["train"].update(per_class=[10**30] * 10),
    "no shards": lambda value: value["splits"]["train"]["shards"].clear(),
    "a shard twice": lambda value: value["splits"]["train"].update(
        shards=value["splits"]["train"]["shards"] * 2
    ),
    "a shard without a name": lambda value: value["splits"]["train"]["shards"][0].update(file=""),
    "a shard elsewhere": lambda value: value["splits"]["train"]["shards"][0].update(file="/etc/hostname"),
    "a shard above": lambda value: value["splits"]["train"]["shards"][0].update(file="../raw"),
    "a shard of an impossible name": lambda value: value["splits"]["train"]["shards"][0].update(file="a\0b"),
    "a shard of a long name": lambda value: value["splits"]["train"]["shards"][0].update(file="a" * 5000),
    "no examples": lambda value: value["splits"]["train"].update(examples=0),
    "examples below zero": lambda value: value["splits"]["train"].update(examples=-1),
    "negative bytes": lambda value: value["splits"]["train"]["shards"][0].update(bytes=-1),
}


@pytest.mark.fast_rows("no splits", "fewer counts", "more classes", "a shard above", "no examples")
@pytest.mark.parametrize("name", MANIFESTS)
def test_a_wrong_manifest_is_refused_or_changes_nothing_that_is_checked(valid, name):
    value = documents.read_json(valid.paths.records / manifest.FILE)
    MANIFESTS[name](value)
    files.write_json(valid.paths.records / manifest.FILE, value)
    assert isinstance(outcome(valid), DataError)  # the labels are those of before
    (valid.paths.records / "labels.txt").write_text(manifest.labels_text(value["classes"]))
    assert isinstance(outcome(valid), DataError) or name in {"equal classes", "no train", "no splits"}


@pytest.mark.parametrize("kept", ["test", "validation"])
def test_a_folder_without_a_train_split_causes_no_unexpected_error(valid, kept):
    value = documents.read_json(valid.paths.records / manifest.FILE)
    value["splits"] = {kept: value["splits"][kept]}
    files.write_json(valid.paths.records / manifest.FILE, value)
    for path in valid.paths.records.glob("*.tfrecord"):
        if kept not in path.name:
            path.unlink()
    outcome(valid)  # no other error


BASELINES = {
    "empty": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "another form": b'{"dataset": "mnist"}',
    "no statistics": b'{"dataset": "mnist", "statistics": null}',
    "not UTF-8": b"\xff\xfe",
    **{
        name: json.dumps(
            {
                "dataset": "mnist",
                "statistics": {"manifest": "0", "per_class": per_class, "brightness": brightness},
            }
        ).encode()
        for name, per_class, brightness in [
            ("no classes", {}, [1] * 32),
            ("no brightness", {"zero": 1}, []),
            ("fewer bins", {"zero": 1}, [1, 2]),
            ("below zero", {"zero": -1, "one": 1}, [-1, 1] * 16),
            ("huge", {"zero": 10**400}, [10**400] * 32),
        ]
    },
}


@pytest.mark.parametrize("name", BASELINES)
def test_a_damaged_baseline_causes_no_unexpected_error(valid, name):
    files.write_bytes(valid.paths.baseline, BASELINES[name])
    outcome(valid)  # no other error


@pytest.mark.parametrize("path", [manifest.FILE, "labels.txt", SHARD])
def test_a_folder_instead_of_a_file_is_refused(valid, path):
    (valid.paths.records / path).unlink()
    (valid.paths.records / path).mkdir()
    with pytest.raises(DataError):
        validate(valid)
