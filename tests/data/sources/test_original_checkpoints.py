"""Which files a path to a checkpoint of TensorFlow 1 means, and what is refused by its kind."""

import pytest

from perennial.base.errors import ConfigError
from perennial.data.sources import weights

PARTS = (".index", ".data-00000-of-00002", ".data-00001-of-00002")
COPIES = [f"slim.ckpt{part}" for part in (".data-00000-of-00002", ".data-00001-of-00002", ".index")]


@pytest.fixture
def copied(workspace, load):
    """Gives the names and contents of the files that are copied for a path."""

    def copied(path):
        config = load(**{"train.warm_start.path": str(path)})
        weights.pin(config)
        target = workspace / "copy"
        weights.copy(config, target, None)
        return {file.name: file.read_text() for file in sorted((target / "warm_start").iterdir())}

    return copied


def write(folder, *prefixes, state=None):
    folder.mkdir(exist_ok=True)
    for prefix in prefixes:
        for part in (*PARTS, ".meta"):
            (folder / f"{prefix}{part}").write_text(f"{prefix}{part}")
    (folder / "graph.pbtxt").write_text("")
    (folder / "events.out.tfevents.1").write_text("")
    if state is not None:
        (folder / "checkpoint").write_text(state)
    return folder


@pytest.mark.parametrize(
    "name", ["model.ckpt-7", "model.ckpt-7.index", "model.ckpt-7.meta", "model.ckpt-7.data-00001-of-00002"]
)
def test_any_file_of_a_checkpoint_means_all_of_its_files(workspace, copied, name):
    folder = write(workspace / "train_dir", "model.ckpt-7", "model.ckpt-70")
    found = copied(folder / name)
    assert list(found) == COPIES
    assert found["slim.ckpt.index"] == "model.ckpt-7.index"


@pytest.mark.parametrize("path", ["model.ckpt-9", "/tmp/tfmodel/model.ckpt-9", "C:\\\\models\\\\model.ckpt-9"])
def test_a_folder_means_the_checkpoint_that_it_calls_the_newest(workspace, copied, path):
    state = f'model_checkpoint_path: "{path}"\nall_model_checkpoint_paths: "model.ckpt-10"\n'
    folder = write(workspace / "train_dir", "model.ckpt-10", "model.ckpt-9", state=state)
    assert copied(folder)["slim.ckpt.index"] == "model.ckpt-9.index"


@pytest.mark.parametrize("state", [None, 'model_checkpoint_path: "/ema/model-540000"'])
def test_a_checkpoint_needs_no_ckpt_in_its_name(workspace, copied, state):
    folder = write(workspace / "ema", "model-540000", state=state)
    assert copied(folder) == copied(folder / "model-540000")


@pytest.mark.parametrize("path", ["s3://bucket/model.ckpt-8", "https://example.org/inception_v1.tar.gz"])
def test_an_address_is_refused_by_its_kind(workspace, copied, path):
    with pytest.raises(ConfigError, match=r"(s3|https) addresses are not read; download it"):
        copied(path)


def test_the_single_file_of_old_versions_is_taken_from_its_folder_too(workspace, copied):
    folder = workspace / "unpacked"
    folder.mkdir()
    (folder / "inception_v3.ckpt").write_text("old")
    assert copied(folder) == copied(folder / "inception_v3.ckpt") == {"slim.ckpt": "old"}


@pytest.mark.parametrize(
    ("name", "state", "message"),
    [
        ("model.ckpt", None, "ckpt does not exist; .*train_dir has model.ckpt-10, model.ckpt-9"),
        ("", None, "has several checkpoints; name one: model.ckpt-10, model.ckpt-9"),
        ("", 'model_checkpoint_path: "model.ckpt-11"\n', "checkpoint names model.ckpt-11, which .* has not"),
        ("", "", "checkpoint names no checkpoint, which .* has not; name one: model.ckpt-10"),
    ],
)
def test_what_names_no_single_checkpoint_is_answered_with_those_that_are_there(
    workspace, copied, name, state, message
):
    folder = write(workspace / "train_dir", "model.ckpt-10", "model.ckpt-9", state=state)
    with pytest.raises(ConfigError, match=message):
        copied(folder / name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("inception_v3_2016_08_28.tar.gz", "is an archive; unpack it, and set the checkpoint in it"),
        ("mobilenet_v1.ckpt.tgz", "is an archive; unpack it"),
        ("own.weights.h5", "is a file of Keras; set it as model.weights"),
        ("own.keras", "is a file of Keras"),
        ("inception_v3.pb", "is a graph for inference; set the checkpoint"),
        ("model.ckpt-7.meta", "is a part of a checkpoint that lacks model.ckpt-7.index beside it"),
        ("notes.txt", "is neither a folder nor a checkpoint of TensorFlow 1; set a model folder"),
        ("missing.ckpt", "does not exist; set a model folder"),
    ],
)
def test_another_kind_of_file_is_refused_by_its_kind(workspace, copied, name, message):
    if not name.startswith("missing"):
        (workspace / name).write_text("")
    with pytest.raises(ConfigError, match=message):
        copied(workspace / name)
