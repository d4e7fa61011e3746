"""Sidecar evaluation: each checkpoint is scored once."""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from support import training
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError, PerennialError, QualityError
from perennial.base.processes import locks
from perennial.model import export_layout
from perennial.model.training import checkpoints, run_directory, sidecar

STEPS = [2, 4, 6]  # each has a checkpoint, and the training's own scores on validation
VALUES = {
    "train.max_steps": 6, "train.steps_between_evals": 2, "train.optimizer": "adam",
    "train.learning_rate": 0.003, "train.averages.decay": 0.8, "train.keep": "best",
    "checkpoints.interval_steps": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which a training with averages has ended, which no test changes."""
    folder = training.prepare(tmp_path_factory.mktemp("trained"))
    with contextlib.chdir(folder):
        training.run(VALUES)
    return folder


@dataclass(frozen=True)
class Training:
    """A copy of that training, with its checkpoints in `folder`."""

    config: Config
    folder: Path

    def watch(self, capsys, split="validation", max_batches=None):
        """What `--watch --once --json` prints of what is there."""
        sidecar.watch(
            self.config, self.folder, split=split, once=True, every_s=60, max_batches=max_batches, as_json=True
        )
        return json.loads(capsys.readouterr().out)

    @property
    def kept(self):
        return self.config.paths.work / "watch" / self.folder.name

    def change(self, step, change):
        """Rewrite a checkpoint with its arrays changed by `change`."""
        (path,) = (each for each in checkpoints.committed(self.folder) if int(each.name[5:]) == step)
        found = checkpoints.read(path)
        checkpoints.write(path, replace(found, values=change(found.values)))
        return path


@pytest.fixture
def copied(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    config = training.parameters(VALUES)
    (mark,) = (config.paths.work / "train").glob(f"*/{run_directory.FINISHED}")
    return Training(config, mark.parent)


def damage(path):
    file = next(path.glob("*.data-*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_scores_equal_those_of_the_training(copied, capsys):
    own = training.table(copied.config.paths.curves / "validation.csv")
    printed = copied.watch(capsys)["results"]
    names = ("step", "accuracy", "loss", "recall_at_5")
    found = [[each[name] for name in names] for each in printed]
    np.testing.assert_allclose(found, [[each[name] for name in names] for each in own], rtol=0, atol=1e-6)
    assert [each["step"] for each in printed] == STEPS


BIAS = np.linspace(-1, 1, 10, dtype=np.float32)


def without_averages(values):
    return {name: value for name, value in values.items() if not name.startswith("averages/")}


def test_averages_replace_the_weights_of_their_names(copied, capsys):
    copied.change(4, lambda values: {**without_averages(values), "weights/logits/bias": BIAS})
    plain = copied.watch(capsys)["results"]
    copied.change(4, lambda values: {**values, "weights/logits/bias": -BIAS, "averages/logits/bias": BIAS})
    averaged = copied.watch(capsys)["results"]
    assert averaged[-1] == {**plain[1], "sha256": averaged[-1]["sha256"]}


def test_averages_of_other_weights_are_refused(copied, capsys):
    copied.change(2, lambda values: {**without_averages(values), "averages/Variable": BIAS})
    with pytest.raises(DataError, match="1 not expected: weights/Variable"):
        copied.watch(capsys)


def test_a_checkpoint_is_scored_once_across_restarts_and_shown_once_in_tensorboard(copied, capsys, caplog):
    first = copied.watch(capsys)
    caplog.clear()
    caplog.set_level(logging.INFO, sidecar.__name__)
    assert copied.watch(capsys) == first
    assert [line for line in caplog.messages if line.startswith("step ")] == []
    logs = copied.config.paths.runs / "tensorboard" / copied.folder.name[:12] / "watch_validation"
    found = EventAccumulator(str(logs)).Reload()
    for name in ("accuracy", "loss", "recall_at_5"):
        points = [(point.step, point.value) for point in found.Scalars(f"validation/{name}")]
        assert points == [(each["step"], pytest.approx(each[name])) for each in first["results"]]


def test_results_of_the_first_batches_of_another_split_are_marked_and_kept_apart(copied, capsys):
    whole = copied.watch(capsys, split="test")["results"]
    smaller = copied.config.evaluate.model_copy(update={"batch_size": 50})
    config = copied.config.model_copy(update={"evaluate": smaller})
    part = Training(config, copied.folder).watch(capsys, split="test", max_batches=2)["results"]
    found = [(each["split"], each["examples"], each["partial"]) for each in (*part, *whole)]
    assert found == [("test", 100, True)] * 3 + [("test", 359, False)] * 3
    assert copied.watch(capsys, split="test")["results"] == whole


def nan(name, size):
    values = {f"weights/{name}": np.full(size, np.nan, np.float32)}
    return lambda copied: copied.change(4, lambda known: {**without_averages(known), **values})


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda copied: damage(checkpoints.committed(copied.folder)[1]), DataError, r"step-000000004/.*sha256"),
        (nan("conv1/bias", 32), QualityError, "not finite: conv1/bias"),  # a ReLU hides it
    ],
)
def test_a_damaged_checkpoint_or_one_of_nan_is_skipped_and_raised_at_the_end(
    copied, capsys, spoil, error, message
):
    spoil(copied)
    with pytest.raises(error, match=message):
        copied.watch(capsys)
    results = (copied.kept / "validation.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in results] == [2, 6]


def test_a_checkpoint_removed_while_it_is_read_is_logged_as_vanished(copied, capsys, caplog):
    caplog.set_level(logging.INFO, sidecar.__name__)
    path = copied.folder / "step-000000002"
    data = next(path.glob("*.data-*"))
    data.unlink()
    os.mkfifo(data)

    def remove():
        with data.open("wb"):  # as soon as it is read
            path.rename(path.with_name(".step-000000002.removed"))

    thread = threading.Thread(target=remove)
    thread.start()
    assert [each["step"] for each in copied.watch(capsys)["results"]] == [4, 6]
    thread.join(600)
    assert [line for line in caplog.messages if line.startswith("step-000000002 vanished")] != []


def test_records_other_than_the_trainings_are_refused(copied, capsys):
    file = copied.config.paths.records / "manifest.json"
    files.write_json(file, {**documents.read_json(file), "source": {"other.csv": "0" * 64}})
    with pytest.raises(DataError, match="manifest"):
        copied.watch(capsys)


@pytest.mark.slow
def test_two_processes_cannot_score_the_same_split(copied, capsys, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_S", 0)
    copied.watch(capsys)
    with (copied.kept / "validation.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(PerennialError, match="another process"):
            copied.watch(capsys)
        copied.watch(capsys, split="test")


def test_the_newest_of_several_trainings_is_scored(copied, capsys):
    older = shutil.copytree(copied.folder, copied.folder.with_name("0" * 64))
    (copied.folder / "steps.csv").touch()
    all_of_them = Training(copied.config, older.parent)
    assert all_of_them.watch(capsys)["training"] == copied.folder.name


def test_a_path_that_holds_no_training_is_refused(copied, capsys):
    files.write_bytes(Path("exported", export_layout.GRAPH), b"")
    copied.folder.rename("moved")
    with pytest.raises(DataError, match="there is no training in it yet"):
        Training(copied.config, Path(".work/train")).watch(capsys)
    for path in (".work/trian", "moved/step-000000002", "models/weights", "exported", "moved/steps.csv"):
        with pytest.raises(ConfigError, match=f"{path} is no training; name a training's folder"):
            Training(copied.config, Path(path)).watch(capsys)


def test_a_file_that_holds_no_results_is_refused(copied, capsys):
    files.write_bytes(copied.kept / "validation.jsonl", b'{"step": 2}\n')
    with pytest.raises(DataError, match=r"validation\.jsonl"):
        copied.watch(capsys)
