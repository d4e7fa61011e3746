"""Networks, preprocessings, optimizers and schedules of components: built, checked and named in errors."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import training

from perennial.base import config
from perennial.base.config import Config
from perennial.base.config.data import ModelConfig
from perennial.base.config.training import ScheduleConfig, TrainConfig
from perennial.base.errors import ConfigError
from perennial.data import preprocessing
from perennial.data.preprocessing.transforms import Target
from perennial.model import models
from perennial.model.training import optimizers, run_directory, schedules

Write = Callable[[str], None]
NETWORK = """
import keras
from keras import layers

def net(image, classes, options):
    dropped = layers.Dropout(0.5)
    return keras.Sequential([
        keras.Input({image}), layers.Flatten(), layers.Dense(4), dropped, layers.Dense({classes}, name="{last}")
    ])
"""
TARGET = Target(height=4, width=4, channels=1, fast=True, centered=True)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write components/own.py of a project, in whose pipeline `birds` this process works."""
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "__init__.py").write_text("")
    (tmp_path / "flows").mkdir()
    folder = tmp_path / "pipelines" / "birds"
    folder.mkdir(parents=True)
    for name in ("params.yaml", "dvc.yaml"):
        (folder / name).write_text("")
    monkeypatch.chdir(folder)
    path = list(sys.path)
    yield lambda text: (tmp_path / "components" / "own.py").write_text(text) and None
    sys.path[:] = path
    for name in [name for name in sys.modules if name.partition(".")[0] == "components"]:
        del sys.modules[name]


def network(**values: str) -> str:
    return NETWORK.format(**{"image": "image", "classes": "classes", "last": "logits", **values})


def built() -> keras.Model:
    options = ModelConfig(name="components.own:net")
    return models.named("components.own:net").build((4, 4, 1), 3, options)


def test_a_sequential_network_is_built_with_equal_names_each_time(write: Write) -> None:
    write(network())
    one, other = built(), built()
    assert [layer.name for layer in one.layers] == [layer.name for layer in other.layers]
    assert [weight.path for weight in one.weights] == [weight.path for weight in other.weights]
    assert one(np.zeros((2, 4, 4, 1), np.float32)).shape == (2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (network(classes="classes + 1"), r"returns \(None, 4\), expected logits \(None, 3\)"),
        (network(image="(5, 5, 1)"), r"takes images \(None, 5, 5, 1\), expected \(None, 4, 4, 1\)"),
        (
            network(last='logits", activation="softmax'),
            "returns probabilities, .* leave out the activation of 'logits'",
        ),
        (network(last='logits", trainable=False, activation="relu'), "freezes logits; let train.trainable"),
        (network(last="scores"), "has no layer named logits; name its last layer logits"),
        ("def net(image, classes, options):\n    pass\n", "returned None, expected a keras.Model"),
        ("def net(image):\n    pass\n", "cannot take the 3 arguments that it gets"),
        ("net = 3\n", "net is an object of int, expected an Architecture or a function"),
        ("def net(image, classes, options):\n    return 1 / 0\n", r"components/own\.py:2: ZeroDivisionError"),
        ("import sys\nsys.exit(0)\nnet = 1\n", r"components/own\.py:2: SystemExit: 0"),
    ],
)
def test_a_network_that_is_none_is_refused_with_its_file(write: Write, text: str, message: str) -> None:
    write(text)
    with pytest.raises(ConfigError, match=message) as raised:
        built()
    assert "components/own.py" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("result", ["images.shape", "cast(images, uint8)", "images[:, :2]"])
def test_a_preprocessing_must_return_the_input_of_the_network(write: Write, result: str) -> None:
    write(f"from tensorflow import cast, uint8\n\ndef own(images, target):\n    return {result}\n")
    with pytest.raises(
        ConfigError, match=r"components/own\.py returned .*, expected float32 \(None, 4, 4, 1\)"
    ):
        preprocessing.named("components.own:own").evaluation(tf.zeros((1, 4, 4, 1)), TARGET)


def test_a_training_with_dropout_of_keras_resumes_bit_for_bit(write: Write, digits: Path) -> None:
    write(network())
    shutil.copytree(digits, Path(), dirs_exist_ok=True)
    values = {"model.name": "components.own:net", "train.max_steps": 6, "checkpoints.interval_steps": 3}
    unbroken = training.run(values).steps
    training.rewind(3)
    assert training.run(values).steps == unbroken


def test_an_optimizer_may_be_a_class_or_a_function(write: Write) -> None:
    write("import keras\nfrom keras.optimizers import Nadam\n\ndef own(rate):\n    return Nadam(rate)\n")
    for name in ("Nadam", "own"):
        chosen = TrainConfig.model_construct(optimizer=f"components.own:{name}", precision="float32")
        made = optimizers.build(chosen, 0.25)
        assert (made.name, float(made.learning_rate)) == (name.lower(), 0.25)


def test_what_is_no_optimizer_is_refused(write: Write) -> None:
    write("def own(rate):\n    return 'adam'\n")
    chosen = TrainConfig.model_construct(optimizer="components.own:own", precision="float32")
    with pytest.raises(ConfigError, match="returned an object of str, expected a Keras optimizer"):
        optimizers.build(chosen, 0.25)


def test_a_schedule_is_a_function_of_the_step(write: Write) -> None:
    write("def own(rate, schedule, steps):\n    return lambda step: rate * (1 - step / steps)\n")
    schedule = ScheduleConfig(name="components.own:own")
    made = schedules.build(TrainConfig(learning_rate=0.5, schedule=schedule), examples=8, batch_size=2, steps=4)
    assert [schedules.logged_rate(made)(step) for step in range(4)] == [0.5, 0.375, 0.25, 0.125]


@pytest.mark.parametrize("rates", ["rate", "0 * step - rate", "0 * step + float('nan')"])
def test_a_schedule_without_a_rate_for_each_step_is_refused(write: Write, rates: str) -> None:
    write(f"def own(rate, schedule, steps):\n    return lambda step: {rates}\n")
    chosen = TrainConfig(schedule=ScheduleConfig(name="components.own:own"))
    with pytest.raises(ConfigError, match="expected two rates"):
        schedules.build(chosen, examples=8, batch_size=2, steps=4)


def test_a_training_with_other_components_has_another_fingerprint(write: Write) -> None:
    base = config.load(Path(__file__).parents[3] / "params.yaml")

    def config_of(name: str) -> Config:
        return base.model_copy(update={"model": base.model.model_copy(update={"name": name})})

    def code(name: str) -> object:
        parts = run_directory.fingerprint(config_of(name), manifest="", weights=None)
        return parts["code"].get("components/own.py")

    write("a = 1\n")
    before = code("components.own:a")
    write("a = 1  # a comment\n")
    assert code("components.own:a") == before
    write("a = 2\n")
    assert code("components.own:a") not in {before, None}
    assert code("lenet") is None
