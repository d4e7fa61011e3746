"""The ready parameter files: whole, sound, and with the numbers of the programs that they stand for."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from perennial import config

ROOT = Path(__file__).parents[2]
# What TensorFlow's MNIST program, TF-Slim's scripts and the CIFAR-10 tutorial set or leave at their defaults.
NUMBERS = {
    "mnist": {
        "dataset.name": "mnist",
        "model.name": "mnist_cnn",
        "model.dropout": None,  # the architecture's 0.4
        "preprocessing.name": "rescale",
        "train.optimizer": "adam",
        "train.learning_rate": 1e-4,
        "train.schedule.name": "fixed",
        "train.batch_size": 100,
        "train.epochs": 40,
        "train.epochs_between_evals": 1,
        "train.stop_metric": "accuracy",
        "train.stop_threshold": 0.998,
        "train.weight_decay": None,  # the architecture's 0
        "checkpoints.interval_s": 600,
        "checkpoints.max_to_keep": 5,
        "logging.every_steps": 100,
    },
    "lenet_mnist": {
        "dataset.name": "mnist",
        "model.name": "lenet",
        "preprocessing.name": "lenet",
        "train.optimizer": "sgd",
        "train.learning_rate": 0.01,
        "train.schedule.name": "fixed",
        "train.batch_size": 32,
        "train.max_steps": 20_000,
        "train.weight_decay": 0,
        "train.label_smoothing": 0,
        "checkpoints.interval_s": 60,
    },
    "cifarnet_cifar10": {
        "dataset.name": "cifar10",
        "model.name": "cifarnet",
        "preprocessing.name": "cifarnet",
        "train.optimizer": "sgd",
        "train.learning_rate": 0.1,
        "train.schedule.name": "exponential",
        "train.schedule.staircase": True,
        "train.schedule.decay_factor": 0.1,
        "train.schedule.decay_steps": 50_000 * 200 // 32,
        "train.schedule.warmup_steps": 0,
        "train.batch_size": 32,
        "train.max_steps": 100_000,
        "train.weight_decay": 0.004,
        "train.label_smoothing": 0,
        "checkpoints.interval_s": 120,
    },
    "cifar10_tutorial": {
        "dataset.name": "cifar10",
        "model.name": "cifar10_tutorial",
        "model.conv_stddev": None,  # the later versions' 0.05
        "preprocessing.name": "cifar10_tutorial",
        "preprocessing.image_size": 24,
        "train.optimizer": "sgd",
        "train.learning_rate": 0.1,
        "train.schedule.name": "exponential",
        "train.schedule.staircase": True,
        "train.schedule.decay_factor": 0.1,
        "train.schedule.decay_steps": int(50_000 / 128 * 350),
        "train.schedule.warmup_steps": 0,
        "train.batch_size": 128,
        "train.max_steps": 100_000,
        "train.weight_decay": None,  # the architecture's 0.004, of two layers
        "train.averages.decay": 0.9999,
        "train.averages.dynamic": True,
        "checkpoints.interval_s": 600,
        "logging.every_steps": 10,
    },
    "inception_v3_flowers": {
        "dataset.name": "flowers",
        "model.name": "inception_v3",
        "preprocessing.name": "inception",
        "preprocessing.image_size": 299,
        "preprocessing.fast": True,
        "train.head.steps": 1000,
        "train.head.learning_rate": 0.01,
        "train.max_steps": 1000 + 500,
        "train.learning_rate": 1e-4,
        "train.schedule.name": "fixed",
        "train.optimizer": "rmsprop",
        "train.optimizers.rmsprop": {"rho": 0.9, "momentum": 0.9, "epsilon": 1.0, "centered": False},
        "train.batch_size": 32,
        "train.weight_decay": 0.00004,
        "train.label_smoothing": 0,
        "train.aux_loss_weight": 0.4,
        "train.trainable": [],
        "checkpoints.max_to_keep": 5,
    },
}


def flat(file):
    """Every value by its full path, in the order of the file."""

    def values(part, above):
        for key, value in part.items():
            yield from values(value, f"{above}{key}.") if isinstance(value, dict) else [(above + key, value)]

    return dict(values(YAML(typ="safe").load(file), ""))


@pytest.fixture
def preset(request, workspace):
    """A preset in place of params.yaml."""
    shutil.copy(ROOT / "params" / f"{request.param}.yaml", "params.yaml")
    return request.param


def test_each_file_has_its_numbers():
    assert {file.stem for file in (ROOT / "params").iterdir()} == NUMBERS.keys()


@pytest.mark.parametrize("preset", NUMBERS, indirect=True)
def test_a_preset_has_the_keys_of_the_projects_parameters_in_their_order(preset):
    assert list(flat(Path("params.yaml"))) == list(flat(ROOT / "params.yaml"))


@pytest.mark.parametrize("preset", NUMBERS, indirect=True)
def test_a_preset_has_the_numbers_of_its_program(preset):
    values = config.load(Path("params.yaml")).model_dump(mode="json")

    def value(path):
        part = values
        for key in path.split("."):
            part = part[key]
        return part

    assert {path: value(path) for path in NUMBERS[preset]} == NUMBERS[preset]


@pytest.mark.parametrize("preset", NUMBERS, indirect=True)
def test_a_preset_writes_where_the_project_does(preset):
    paths = {name: path for name, path in flat(Path("params.yaml")).items() if name.startswith("paths.")}
    assert paths.items() <= flat(ROOT / "params.yaml").items()
