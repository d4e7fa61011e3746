"""Run folders: which trainings continue each other, why one starts from step 0, which checkpoints stay."""

import shutil
from pathlib import Path

import pytest
from support.edits import edit

from perennial.base import documents
from perennial.base.project import source_code
from perennial.model.training import run_directory

TRAIN_STEP = "model/training/train_step.py"


@pytest.fixture
def digest(load):
    def of(manifest="data", weights=None, package=source_code.PACKAGE, **values):
        parts = run_directory.fingerprint(load(**values), manifest=manifest, weights=weights, package=package)
        return run_directory.digest(parts)

    return of


@pytest.fixture
def package(tmp_path):
    return Path(shutil.copytree(source_code.PACKAGE, tmp_path / "package"))


@pytest.mark.fast_rows("train.seed-1", "train.optimizer_options.beta_1-0.8", "preprocessing.image_size-16")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train.seed", 1), ("train.epochs", 31), ("train.batch_size", 32), ("train.memory_mb", 1),
        ("train.precision", "bfloat16"), ("train.optimizer_options.beta_1", 0.8), ("model.name", "lenet"),
        ("model.dropout", 0.1), ("preprocessing.image_size", 16),
    ],
)  # fmt: skip
def test_a_parameter_that_changes_the_weights_changes_the_fingerprint(digest, key, value):
    assert digest() != digest(**{key: value})


@pytest.mark.fast_rows("train.devices-cpu:2", "checkpoints.interval_s-1.0", "gate.min_accuracy-0.5")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train.devices", "cpu:2"), ("train.all_reduce", "nccl"), ("train.intra_op_threads", 1),
        ("train.cache", "none"), ("checkpoints.interval_s", 1.0), ("logging.every_steps", 1),
        ("checkpoints.remote", "s3://bucket/work"),
        ("paths.work", "elsewhere"), ("gate.min_accuracy", 0.5), ("evaluate.batch_size", 1),
    ],
)  # fmt: skip
def test_another_parameter_does_not(digest, key, value):
    assert digest() == digest(**{key: value})


def test_data_and_start_weights_change_the_fingerprint(digest):
    assert len({digest(), digest(manifest="other data"), digest(weights="some")}) == 3


def test_an_operator_changes_the_fingerprint_but_a_comment_does_not(digest, package):
    edit(package / TRAIN_STEP, "import logging\n", "import logging  # a comment\n\n\n")
    assert digest() == digest(package=package)
    edit(package / TRAIN_STEP, "(average - weight) * share", "(average + weight) * share")
    assert digest() != digest(package=package)


def test_a_new_module_changes_the_fingerprint_once_it_is_imported(digest, package):
    (package / "model" / "models" / "new.py").write_text("A = 1\n")
    assert digest() == digest(package=package)
    edit(package / TRAIN_STEP, "import keras\n", "import keras\nfrom perennial.model.models import new\n")
    assert digest() != digest(package=package)


def test_the_fingerprint_covers_the_modules_that_decide_the_weights_and_no_others(load):
    code = run_directory.fingerprint(load(), manifest="data", weights=None)["code"]
    data = {
        f"data/{name}.py" for name in ("preprocessing/inception_and_vgg", "records/splits", "records/pipeline")
    }
    assert {TRAIN_STEP, "model/models/layers.py", *data} <= code.keys()
    assert "model/evaluation/label_errors.py" not in code


def test_differences_name_parameters_code_packages_and_data(load, package):
    edit(package / TRAIN_STEP, "(average - weight) * share", "(average + weight) * share")
    old = run_directory.fingerprint(load(), manifest="old", weights=None)
    new = run_directory.fingerprint(
        load(**{"train.seed": 7, "train.schedule.power": 2.0}), manifest="new", weights="w", package=package
    )
    new = {**new, "packages": {**new["packages"], "keras": "9.9"}}
    found = run_directory.differences(old, new)
    assert [name.partition(" (")[0] for name in found] == [
        f"code {TRAIN_STEP}", "data", "keras", "train.schedule.power", "train.seed", "start weights",
    ]  # fmt: skip
    assert found[4] == "train.seed (0, now 7)"
    assert run_directory.differences(old, old) == []


@pytest.fixture
def trainings(tmp_path):
    """Folders of trainings: this one, finished ones and one that can be resumed."""
    for name in ("this", "old", "older", "resumable"):
        (tmp_path / name / "step-000000005").mkdir(parents=True)
    for name in ("old", "older"):
        (tmp_path / name / run_directory.FINISHED).touch()
    return tmp_path


def finish(folder, started_from=None):
    run_directory.finish(folder, weights_sha256="1f", started_from=started_from)


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_finishing_removes_finished_trainings_and_keeps_those_that_can_be_resumed(trainings):
    finish(trainings / "this")
    assert names(trainings) == {"this", "resumable"}
    assert names(trainings / "this") == {"step-000000005", "finished"}
    record = documents.read_json(trainings / "this" / run_directory.FINISHED)
    assert (record["weights_sha256"], [*record["versions"]]) == (
        "1f",
        ["keras", "numpy", "python", "tensorflow"],
    )


@pytest.mark.parametrize("inside", ["", "step-000000005"])
def test_the_start_weights_stay(trainings, inside):
    finish(trainings / "this", started_from=str(trainings / "old" / inside))
    assert names(trainings) == {"this", "old", "resumable"}


def test_a_killed_removal_is_completed(trainings):
    (trainings / "old").rename(trainings / ".old.removed")
    finish(trainings / "this")
    assert names(trainings) == {"this", "resumable"}


def test_a_training_that_goes_on_with_other_options_says_so(load, tmp_path, caplog):
    folder = tmp_path / "run"
    (folder / "step-000000005").mkdir(parents=True)
    for threads in (0, 0, 2, 2):
        run_directory.record(folder, {}, load(**{"train.intra_op_threads": threads, "train.cache": "none"}))
    assert run_directory.resumptions(folder) == [{"step": 5, "changed": ["train.intra_op_threads (0, now 2)"]}]
    changed = "it continues after step 5 with other options: train.intra_op_threads (0, now 2)"
    assert caplog.text.count(changed) == 1
    (folder / "step-000000005").rmdir()
    run_directory.record(folder, {}, load(**{"train.intra_op_threads": 1}))
    assert run_directory.resumptions(folder) == []


@pytest.mark.parametrize("content", ["", "[]", '{"options": 1, "resumed": 2}', "{"])
def test_damage_to_what_a_training_recorded_is_no_obstacle(load, tmp_path, content):
    (tmp_path / "step-000000005").mkdir()
    (tmp_path / "fingerprint.json").write_text(content)
    run_directory.record(tmp_path, {}, load())
    assert run_directory.resumptions(tmp_path) == []


def test_what_the_code_does_is_kept_in_a_file_that_counts_only_while_it_is_whole(tmp_path):
    cache = tmp_path / "code.json"
    first = run_directory.code(cache=cache)
    kept = cache.read_text()
    assert run_directory.code(cache=cache) == first == run_directory.code()
    cache.write_text(kept.replace(next(iter(first.values())), "0" * 64))
    assert run_directory.code(cache=cache) == first
