"""Presets: each holds the numbers of the program that it stands for, and nothing else."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perennial.base import config
from perennial.base.params import edit_params, options
from perennial.cli import app

OWN = {"fast_cifar10", "fast_cifar10_wide", "own_images"}  # of no program
# All values of TensorFlow's MNIST program, TF-Slim's scripts and the CIFAR-10 tutorial, set or by default.
FULL = json.loads((Path(__file__).parent / "data" / "presets.json").read_text())

NAMES = [*FULL, *sorted(OWN)]


def flat(values, above=""):
    for key, value in values.items():
        yield from flat(value, f"{above}{key}.") if isinstance(value, dict) else [(f"{above}{key}", value)]


def applied(name, text):
    """Every value after a preset."""
    done = edit_params.apply_preset(text, name)
    assert done.problems() == []
    train = config.check(config.read(done.text)).train
    settings = {
        f"train.optimizers.{train.optimizer}.{key}": value for key, value in train.optimizer_settings.items()
    }
    return {**dict(flat(config.read(done.text))), **settings}, done.text


@pytest.fixture
def defaults(workspace):
    return options.defaults()


def test_every_preset_is_tried():
    assert {file.stem for file in edit_params.PRESETS.iterdir()} == FULL.keys() | OWN


@pytest.mark.parametrize("name", FULL)
def test_a_preset_applied_to_the_defaults_has_all_values_of_its_program(defaults, name):
    values, _ = applied(name, defaults)
    assert FULL[name].items() <= values.items()
    new = values.keys() - FULL[name].keys()
    assert {key: values[key] for key in new} == {key: options.values(tuple(key.split("."))) for key in new}


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_holds_only_what_differs_from_the_defaults(defaults, name):
    text = (edit_params.PRESETS / f"{name}.yaml").read_text(encoding="utf-8")
    default = dict(flat(options.values(())))
    assert [key for key, value in flat(config.read(text)) if default.get(key) == value is not None] == []
    assert 9 <= len(text.splitlines()) <= 18


@pytest.mark.fast_rows("lenet_mnist-cifarnet_cifar10", "fast_cifar10-fast_cifar10_wide")
@pytest.mark.parametrize(("before", "name"), list(pairwise([*NAMES, NAMES[0]])))
def test_one_preset_after_another_equals_the_last_alone(defaults, before, name):
    assert applied(name, applied(before, defaults)[1])[0] == applied(name, defaults)[0]


def test_values_and_comments_of_your_own_stay(defaults):
    own = defaults.replace("devices: auto # auto, cpu:N, gpu:N (", "devices: cpu:2   # mine (", 1)
    text = applied("cifar10_tutorial", own)[1]
    assert "  devices: cpu:2   # mine (" in text
    old, new = own.splitlines(), text.splitlines()
    changed = [i for i, line in enumerate(old) if line != new[i]]
    assert len(old) == len(new)
    assert len(changed) == 15


def test_a_yaml_file_of_your_own_is_a_preset(workspace):
    Path("mine.yaml").write_text("train:\n  epochs: 7\n")
    assert CliRunner().invoke(app, ["config", "--preset", "mine.yaml"]).exit_code == 0
    assert config.load(Path("params.yaml")).train.epochs == 7


@pytest.mark.parametrize("preset", ["mnsit", "../mnist", "absent.yaml", ""])
def test_an_unknown_preset_changes_nothing(workspace, preset):
    before = Path("params.yaml").read_bytes()
    assert CliRunner().invoke(app, ["config", "--preset", preset]).exit_code == 2
    assert Path("params.yaml").read_bytes() == before
