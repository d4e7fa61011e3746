"""The manifest: read as it was written, refused when damaged."""

import hashlib

import pytest

from perennial.base import documents, files
from perennial.base.errors import DataError
from perennial.data.records import manifest


def with_train(edit):
    return lambda value: edit(value["splits"]["train"])


def with_shard(**values):
    return with_train(lambda train: train["shards"][0].update(values))


def test_a_manifest_comes_back_as_it_was_in_equal_bytes(folder):
    loaded = manifest.load(folder)
    manifest.write(folder / "copy", loaded)
    assert manifest.load(folder / "copy") == loaded
    assert (folder / "copy" / manifest.FILE).read_bytes() == (folder / manifest.FILE).read_bytes()


def test_the_task_and_the_count_without_labels_stand_only_in_a_manifest_of_several_labels(folder):
    one = manifest.load(folder)
    assert not {"task", "unlabelled"} & {*one.model_dump(), *one.model_dump()["splits"]["train"]}
    several = one.model_copy(update={"task": "multilabel"})
    several.splits["train"] = several.splits["train"].model_copy(update={"unlabelled": 2})
    manifest.write(folder / "copy", several)
    assert manifest.load(folder / "copy") == several
    assert (one.label_columns, several.label_columns) == (0, len(one.classes))


def shard(sha256, examples):
    return manifest.Shard(file=f"{sha256}.tfrecord", examples=examples, bytes=10, sha256=sha256)


def of_splits(**splits):
    return manifest.Manifest(dataset="pets", classes=["cat"], source={}, splits=splits)


def split(examples, *shards):
    return manifest.SplitManifest(examples=examples, per_class=[examples], shards=list(shards))


def test_the_digest_of_a_split_is_that_of_its_shards_with_examples_in_their_order():
    parts = [shard("aa", 1), shard("bb", 0), shard("cc", 2)]
    data = of_splits(train=split(3, *parts), test=split(3, *reversed(parts)))
    assert data.split_digest("train") == hashlib.sha256(b"aa\ncc").hexdigest()
    assert data.split_digest("test") == hashlib.sha256(b"cc\naa").hexdigest()


@pytest.mark.parametrize(
    ("splits", "validates"),
    [
        ({}, True),
        ({"train": split(0)}, True),
        ({"validation": split(0)}, False),
        ({"validation": split(1)}, True),
        ({"validation": split(0, shard("aa", 0))}, True),
    ],
)
def test_only_a_validation_split_of_nothing_does_not_validate(splits, validates):
    assert of_splits(**splits).validates is validates


def test_a_missing_manifest_is_reported_with_its_remedy(tmp_path):
    with pytest.raises(
        DataError, match=r"manifest\.json does not exist; `dvc repro convert` makes or restores it"
    ):
        manifest.load(tmp_path)


DAMAGE = {
    "no classes": (lambda value: value.pop("classes"), "no classes"),
    "another key": (lambda value: value.update(more=1), "1 as more: extra inputs are not permitted"),
    "a key of a split": (with_train(lambda train: train.update(more=1)), r"splits\.train\.more: extra inputs"),
    "a key of a shard": (with_shard(more=1), r"splits\.train\.shards\.0\.more: extra inputs"),
    "a text": (with_train(lambda train: train.update(examples="20")), r"splits\.train\.examples"),
    "another split": (lambda value: value["splits"].update(extra=value["splits"]["train"]), r"splits\.extra"),
    "no digest": (
        with_train(lambda train: train["shards"][0].pop("sha256")),
        r"splits\.train\.shards\.0\.sha256",
    ),
    "fewer than none": (with_train(lambda train: train.update(examples=-1)), r"splits\.train\.examples"),
    "a shard of fewer": (with_shard(examples=-1), r"splits\.train\.shards\.0\.examples"),
    "a shard of fewer bytes": (with_shard(bytes=-1), r"splits\.train\.shards\.0\.bytes"),
    **{
        f"the name {name[:9]!r}": (with_shard(file=name), r"splits\.train\.shards\.0\.file")
        for name in ("", "a/b", "a\\b", "a\0b", "a" * 201)
    },
}


@pytest.mark.parametrize(("edit", "key"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_manifest_is_reported_with_its_key_and_remedy(folder, edit, key):
    value = documents.read_json(folder / manifest.FILE)
    edit(value)
    files.write_json(folder / manifest.FILE, value)
    with pytest.raises(DataError, match=rf"manifest\.json has .*{key}.*`dvc repro convert` makes or restores"):
        manifest.load(folder)


def test_labels_are_lines_of_number_and_name():
    assert manifest.labels_text(["zero", "one"]) == "0:zero\n1:one\n"
