"""The manifest: read as it was written, refused when damaged."""

import pytest

from perennial.base import documents, files
from perennial.base.errors import DataError
from perennial.data.records import manifest


def change(folder, edit):
    value = documents.read_json(folder / manifest.FILE)
    edit(value)
    files.write_json(folder / manifest.FILE, value)


def test_a_manifest_comes_back_as_it_was(folder):
    loaded = manifest.load(folder)
    manifest.write(folder / "copy", loaded)
    assert manifest.load(folder / "copy") == loaded


def test_equal_manifests_are_equal_bytes(folder):
    manifest.write(folder / "copy", manifest.load(folder))
    assert (folder / "copy" / manifest.FILE).read_bytes() == (folder / manifest.FILE).read_bytes()


def test_the_digest_of_a_split_changes_with_that_split_alone(folder):
    before = manifest.load(folder)
    change(folder, lambda value: value["splits"]["train"]["shards"][0].update(sha256="0"))
    after = manifest.load(folder)
    assert before.split_digest("test") == after.split_digest("test") != after.split_digest("train")
    assert before.split_digest("train") != after.split_digest("train")


def test_a_missing_manifest_is_reported_with_its_remedy(tmp_path):
    with pytest.raises(DataError, match=r"manifest\.json does not exist; `dvc repro convert` makes it"):
        manifest.load(tmp_path)


@pytest.mark.parametrize(
    ("edit", "key"),
    [
        (lambda value: value.pop("classes"), "classes field required"),
        (lambda value: value.update(more=1), "more extra inputs are not permitted"),
        (lambda value: value["splits"]["train"].update(examples="20"), r"splits\.train\.examples"),
        (lambda value: value["splits"].update(extra=value["splits"]["train"]), r"splits\.extra"),
        (lambda value: value["splits"]["test"]["shards"][0].pop("sha256"), r"splits\.test\.shards\.0\.sha256"),
    ],
)
def test_a_damaged_manifest_is_reported_with_its_key(folder, edit, key):
    change(folder, edit)
    with pytest.raises(DataError, match=rf"manifest\.json is damaged: {key}"):
        manifest.load(folder)


@pytest.mark.parametrize("kept", [0, 1, 100, -3])
def test_a_cut_manifest_is_a_data_error(folder, kept):
    file = folder / manifest.FILE
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"manifest\.json is damaged"):
        manifest.load(folder)


def test_the_digest_changes_with_any_shard(folder):
    before = manifest.digest(folder)
    change(folder, lambda value: value["splits"]["train"]["shards"][0].update(sha256="0" * 64))
    assert manifest.digest(folder) != before


def test_labels_are_lines_of_number_and_name():
    assert manifest.labels_text(["zero", "one"]) == "0:zero\n1:one\n"
