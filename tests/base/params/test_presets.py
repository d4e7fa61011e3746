"""Presets: each holds the numbers of the program that it stands for, and nothing else."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perennial.base import config
from perennial.base.params import edit_params, options
from perennial.cli import app

ROOT = Path(__file__).parents[3]
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
        "train.optimizers.rmsprop": {
            "rho": 0.9,
            "momentum": 0.9,
            "epsilon": 1.0,
            "centered": False,
            "initial_accumulator_value": 1.0,
        },
        "train.batch_size": 32,
        "train.weight_decay": 0.00004,
        "train.label_smoothing": 0,
        "train.aux_loss_weight": 0.4,
        "train.trainable": [],
        "checkpoints.max_to_keep": 5,
    },
    "fast_cifar10": {  # no program's: airbench's proportions
        "dataset.name": "cifar10",
        "model.name": "fast_cnn",
        "preprocessing.name": "shifted",
        "train.max_steps": 2000,
        "train.batch_size": 128,
        "train.optimizer": "momentum",
        "train.optimizers.momentum.nesterov": True,
        "train.label_smoothing": 0.2,
        "train.augmentation.alternating_flip": True,
    },
    "fast_cifar10_wide": {  # the same with airbench's channels
        "dataset.name": "cifar10",
        "model.name": "fast_cnn",
        "model.channels": [64, 256, 256],
        "preprocessing.name": "shifted",
        "train.max_steps": 5600,
        "train.precision": "bfloat16",
        "train.augmentation.alternating_flip": True,
    },
    "own_images": {  # no program's: what `perennial start` chooses for some dozens of photos
        "dataset.name": "image_folder",
        "preprocessing.name": "plain",
        "model.name": "mobilenet_v2",
        "model.weights": "imagenet",
        "train.trainable": ["logits"],
        "train.stop_threshold": None,
        "gate.min_accuracy": None,
    },
}


# the full files of commit 45d1beb, which presets were
FULL = json.loads((Path(__file__).parent / "data" / "presets.json").read_text())


def flat(values, above=""):
    for key, value in values.items():
        yield from flat(value, f"{above}{key}.") if isinstance(value, dict) else [(f"{above}{key}", value)]


def applied(name, text):
    """Every value after a preset."""
    done = edit_params.apply_preset(text, name, ROOT / "params")
    assert done.problems() == []
    return dict(flat(config.read(done.text))), done.text


@pytest.fixture
def defaults(workspace):
    return options.defaults()


def test_every_preset_has_its_numbers():
    assert (
        {file.stem for file in (ROOT / "params").iterdir()}
        == NUMBERS.keys()
        == {*FULL, "fast_cifar10", "fast_cifar10_wide", "own_images"}
    )


@pytest.mark.parametrize("name", FULL)
def test_a_preset_applied_to_the_defaults_equals_the_full_file_that_it_replaced(defaults, name):
    values, _ = applied(name, defaults)
    assert FULL[name].items() <= values.items()
    new = values.keys() - FULL[name].keys()
    assert {key: values[key] for key in new} == {key: options.values(tuple(key.split("."))) for key in new}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_preset_has_the_numbers_of_its_program(defaults, name):
    values = config.read(applied(name, defaults)[1])

    def value(path):
        part = values
        for key in path.split("."):
            part = part[key]
        return part

    assert {path: value(path) for path in NUMBERS[name]} == NUMBERS[name]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_preset_holds_only_what_differs_from_the_defaults(defaults, name):
    text = (ROOT / "params" / f"{name}.yaml").read_text(encoding="utf-8")
    assert [
        key for key, value in flat(config.read(text)) if options.values(tuple(key.split("."))) == value
    ] == []
    assert 9 <= len(text.splitlines()) <= 18


@pytest.mark.fast_rows("lenet_mnist-cifarnet_cifar10", "fast_cifar10-fast_cifar10_wide")
@pytest.mark.parametrize(("before", "name"), list(pairwise([*NUMBERS, next(iter(NUMBERS))])))
def test_one_preset_after_another_equals_the_last_alone(defaults, before, name):
    assert applied(name, applied(before, defaults)[1])[0] == applied(name, defaults)[0]


def test_values_and_comments_of_your_own_stay(defaults):
    own = defaults.replace("devices: auto # auto, cpu:N, gpu:N (", "devices: cpu:2   # mine (", 1)
    text = applied("cifar10_tutorial", own)[1]
    assert "  devices: cpu:2   # mine (" in text
    old, new = own.splitlines(), text.splitlines()
    changed = [i for i, line in enumerate(old) if line != new[i]]
    assert len(old) == len(new)
    assert len(changed) == 17


def test_the_command_applies_a_preset_of_the_project(workspace):
    shutil.copytree(ROOT / "params", "params")
    assert CliRunner().invoke(app, ["config", "--preset", "mnist"]).exit_code == 0
    assert config.load(Path("params.yaml")).train.epochs == 40


@pytest.mark.parametrize("preset", ["mnsit", "../mnist", ""])
def test_an_unknown_preset_changes_nothing(workspace, preset):
    shutil.copytree(ROOT / "params", "params")
    before = Path("params.yaml").read_bytes()
    assert CliRunner().invoke(app, ["config", "--preset", preset]).exit_code == 2
    assert Path("params.yaml").read_bytes() == before
