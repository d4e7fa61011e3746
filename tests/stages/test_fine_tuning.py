"""Fine-tuning: weights to start from, the head alone and then the rest, and what stays as it was."""

import csv
import logging
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from support import forks, raw
from support.parameters import change_params
from support.training import initialize_weights

from perennial.base import config
from perennial.base.config import Config
from perennial.base.errors import ConfigError
from perennial.model.models import model_folder
from perennial.model.training.checkpoints import committed, read
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.evaluate import evaluate
from perennial.stages.train import train
from perennial.stages.validate import validate

ROOT = Path(__file__).parents[2]
IMAGENET = "mobilenet_notop.h5"
TUNED = {  # a network with batch normalization; its checkpoints are of the steps 3, 4, 6 and 8
    "dataset.name": "image_folder", "dataset.validation_fraction": 0.25, "preprocessing.name": "inception",
    "preprocessing.image_size": 32, "model.name": "mobilenet_v1_025", "model.weights": IMAGENET,
    "train.epochs": None, "train.max_steps": 8, "train.batch_size": 6, "train.steps_between_evals": 4,
    "train.stop_threshold": None, "train.schedule.name": "cosine", "train.averages.decay": 0.9,
    "train.head.steps": 4, "checkpoints.interval_s": None, "checkpoints.interval_steps": 3,
}  # fmt: skip
SMALL = {"train.epochs": None, "train.max_steps": 4, "train.stop_threshold": None}
Weights = dict[str, np.ndarray]


def prepare(folder: Path, values: dict[str, object]) -> Config:
    """Validated records in a folder, which becomes the working folder."""
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(folder / "params.yaml", values)
    parameters = config.load(Path("params.yaml"))
    for stage in (download, convert, validate):
        stage(parameters)
    return parameters


def write_imagenet_weights(file: Path) -> None:
    """A file like those of Keras Applications, with other numbers."""
    keras.utils.set_random_seed(7)
    model = keras.applications.MobileNet(input_shape=(32, 32, 3), alpha=0.25, include_top=False, weights=None)
    with warnings.catch_warnings(action="ignore"):  # of an old format, and of how it is written
        model.save(file)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fine-tuned and evaluated model; the ImageNet file is gone."""
    folder = tmp_path_factory.mktemp("tuned")
    raw.write_pictures(folder / "own")
    write_imagenet_weights(folder / IMAGENET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        parameters = prepare(folder, TUNED)
        initialize_weights(parameters)
        train(parameters)
        (folder / IMAGENET).rename(folder / "moved.h5")
        evaluate(parameters)
    return folder


@pytest.fixture
def run(tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The parameters of a copy of the fine-tuned run, with the ImageNet file, which the test works in."""
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    (tmp_path / "moved.h5").rename(tmp_path / IMAGENET)
    monkeypatch.chdir(tmp_path)
    return config.load(Path("params.yaml"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small network trained on the digits."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train(prepare(folder, SMALL))
    return folder


@pytest.fixture
def again(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Trains in a copy of the small run with some parameters changed; gives the new training's folder."""
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "weights").rename(tmp_path / "trained")

    def change_and_train(**values: object) -> Path:
        before = set(Path(".work/train").iterdir())
        change_params(Path("params.yaml"), {name.replace("__", "."): value for name, value in values.items()})
        parameters = config.load(Path("params.yaml"))
        initialize_weights(parameters)
        train(parameters)
        (folder,) = set(Path(".work/train").iterdir()) - before or before  # an equal training has the same
        return folder

    return change_and_train


def group(checkpoint: Path, name: str = "weights") -> Weights:
    return read(checkpoint).group(name)


def same(one: Weights, other: Weights) -> set[str]:
    """The layers whose every weight has the very same bits."""
    other_layers = {path.partition("/")[0] for path in one if one[path].tobytes() != other[path].tobytes()}
    return {path.partition("/")[0] for path in one} - other_layers


def training_folder(folder: Path = Path()) -> Path:
    (found,) = (folder / ".work" / "train").iterdir()
    return found


def outcome() -> dict[str, bytes]:
    made = [*Path("models/weights").iterdir(), Path("metrics/training.json"), training_folder() / "steps.csv"]
    return {file.name: file.read_bytes() for file in made}


@pytest.mark.slow
def test_the_head_alone_changes_first_and_then_every_layer_from_imagenets_weights(tuned: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        published = keras.models.load_model(tuned / "moved.h5", compile=False)
    saved = committed(training_folder(tuned))
    assert [int(path.name[5:]) for path in saved] == [3, 4, 6, 8]
    first, changed, _, last = map(group, saved)
    assert {path.partition("/")[0] for path in first} - same(first, changed) == {"logits"}
    for weight in published.weights:
        np.testing.assert_array_equal(changed[weight.path], weight)
    assert [path for path in changed if changed[path].tobytes() == last[path].tobytes()] == []


@pytest.mark.slow
def test_each_phase_has_an_optimizer_and_a_schedule_of_its_own(tuned: Path) -> None:
    _, change, _, last = committed(training_folder(tuned))
    updates = [
        [int(group(step, "optimizers")[name]) for step in (change, last)]
        for name in ("adam/iteration", "adam/iteration#2")
    ]
    assert updates == [[4, 4], [0, 4]]
    assert not group(change, "optimizers")["adam/conv1_kernel_momentum"].any()
    with (training_folder(tuned) / "steps.csv").open() as file:
        rates = [float(row["learning_rate"]) for row in csv.DictReader(file)]
    assert rates[:5] == pytest.approx([0.01] * 4 + [0.001])
    assert rates[4] > rates[5] > rates[6] > rates[7] > 0.0001


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 6])
def test_a_training_that_resumes_in_either_phase_ends_the_same(run: Config, step: int, caplog) -> None:
    caplog.set_level(logging.INFO, "perennial")
    expected = outcome()
    for path in committed(training_folder()):
        if int(path.name[5:]) > step:
            shutil.rmtree(path)
    shutil.rmtree("models")
    train(run)
    assert outcome() == expected
    assert f"resumed from step {step}" in caplog.text
    assert "train.warm_start and model.weights are ignored" in caplog.text
    assert "newly initialized" not in caplog.text


def test_layers_that_are_not_trained_stay_have_no_averages_and_no_slots(again) -> None:
    folder = again(
        train__warm_start__path="trained",
        train__trainable=["logits"],
        train__averages__decay=0.9,
        checkpoints__interval_steps=1,
    )
    (first, *_, last) = committed(folder)
    assert same(group(first), group(last)) == {"conv1", "conv2", "dense"}
    model, _ = model_folder.load(Path("trained"))
    for weight in model.weights:
        if not weight.path.startswith("logits"):
            np.testing.assert_array_equal(group(last)[weight.path], weight)
    assert sorted(value.shape for value in group(last, "averages").values()) == [(10,), (1024, 10)]
    assert {name.rpartition("/")[2] for name in group(last, "optimizers")} == {
        "iteration", "learning_rate", "logits_kernel_momentum", "logits_kernel_velocity",
        "logits_bias_momentum", "logits_bias_velocity",
    }  # fmt: skip


def test_one_command_starts_from_other_weights_and_pins_nothing(again) -> None:
    params = Path("params.yaml").read_bytes()
    values = {"warm_start.path": "trained", "max_steps": 1, "optimizer": "sgd", "learning_rate": 1e-30}
    changes = [part for key, value in values.items() for part in ("--set", f"train.{key}={value}")]
    command = [forks.with_tensorflow(), "-m", "perennial", "train", *changes]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warm start: took 8 weights from trained; other layers: none" in done.stderr
    before, after = (model_folder.load(Path(folder))[0] for folder in ("trained", "models/weights"))
    for weight, other in zip(before.weights, after.weights, strict=True):
        np.testing.assert_allclose(weight, other, rtol=0, atol=1e-25)
    assert Path("params.yaml").read_bytes() == params
    assert not Path("pins/weights.json").exists()
    assert not Path("data/initial_weights").exists()


def test_weights_in_the_parameters_that_are_not_pinned_are_refused_with_the_commands(again) -> None:
    change_params(Path("params.yaml"), {"train.warm_start.path": "trained"})
    with pytest.raises(ConfigError, match="`perennial pin weights` and then `perennial initialize` take"):
        train(config.load(Path("params.yaml")))


@pytest.mark.slow
def test_a_first_phase_as_long_as_the_training_trains_the_head_alone(again, caplog) -> None:
    folder = again(train__head__steps=9, train__warm_start__path="trained")
    assert "train.head.steps 9" in caplog.text
    model, _ = model_folder.load(Path("trained"))
    before = {weight.path: weight.numpy() for weight in model.weights}
    (last,) = committed(folder)
    assert same(before, group(last)) == {"conv1", "conv2", "dense"}
