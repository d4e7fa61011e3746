"""Checkpoints of TensorFlow 1 in the format that slim writes, as start weights."""

import json
import logging
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from model.models import slim_values
from support.training import initialize_weights

from perennial.base.config.training import WarmStartConfig
from perennial.base.errors import ConfigError, DataError
from perennial.model.models import logits, slim_checkpoint
from perennial.model.training import warm_start
from perennial.model.training.warm_start import StartWeights

SLIM = json.loads((Path(__file__).with_name("data") / "slim.json").read_text())
FAMILIES = {
    "alexnet_v2": 224, "vgg_16": 224, "inception_v1": 224, "inception_v3": 299, "resnet_v1_50": 64,
    "resnet_v2_50": 75,
}  # fmt: skip


def write(prefix: Path, model: keras.Model, leave_out: str = "", **more: np.ndarray) -> Path:
    """A checkpoint as slim's training writes it: weights by slim's names, and the state of an optimizer."""
    values = dict(more)
    for path, name in slim_checkpoint.variables(model).items():
        if path != leave_out:
            (weight,) = [each for each in model.weights if each.path == path]
            values[name] = slim_values.weight(name, tuple(weight.shape))
            if weight.trainable and len(weight.shape) == 1:
                values[f"{name}/Momentum"] = np.zeros(weight.shape, np.float32)
    values["global_step"] = np.int64(7)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    return prefix


@pytest.fixture(scope="module")
def model(build) -> keras.Model:
    return build("inception_v1", (32, 32, 3))


@pytest.fixture(scope="module")
def checkpoint(model: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("slim") / "model.ckpt-7", model)


def begun(model: keras.Model, prefix: Path, **options: object) -> None:
    settings = {"path": str(prefix), "exclude": [], "ignore_missing": False, **options}
    start = StartWeights(imagenet=None, weights=slim_checkpoint.read(prefix), sha256="", slim=True)
    warm_start.begin(model, start, WarmStartConfig.model_validate(settings))


def test_a_training_starts_from_the_path_of_a_checkpoint(load, model, checkpoint: Path) -> None:
    values = {"model.name": "inception_v1", "preprocessing.image_size": 32}
    config = load(**{"train.warm_start.path": str(checkpoint), **values})
    initialize_weights(config)
    start = warm_start.read(config)
    warm_start.begin(model, start, config.train.warm_start)
    name = "InceptionV1/Mixed_3b/Branch_1/Conv2d_0b_3x3/BatchNorm/moving_mean"
    layer = model.get_layer("Mixed_3b.Branch_1.Conv2d_0b_3x3.BatchNorm")
    np.testing.assert_array_equal(layer.moving_mean, slim_values.weight(name, layer.moving_mean.shape))


def test_what_a_checkpoint_has_too_much_is_named(build, model, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    begun(model, write(tmp_path / "model.ckpt", model, Extra=np.zeros(3, np.float32)))
    assert "the checkpoint also has Extra, which inception_v1 has not" in caplog.text


def test_what_a_checkpoint_lacks_is_named(model, tmp_path: Path) -> None:
    lacking = write(tmp_path / "model.ckpt", model, leave_out="logits/bias")
    with pytest.raises(ConfigError, match=r"model\.ckpt lacks logits/bias; to start them new"):
        begun(model, lacking)
    begun(model, lacking, ignore_missing=True)


def test_another_number_of_classes_is_left_out_by_the_pattern_of_its_layer(model, tmp_path: Path) -> None:
    scope = "InceptionV1/Logits/Conv2d_0c_1x1"
    more = {f"{scope}/weights": np.zeros((1, 1, 1024, 7), np.float32)}
    others = write(tmp_path / "model.ckpt", model, leave_out="logits/kernel", **more)
    with pytest.raises(ConfigError, match=r"logits/kernel \[1, 1, 1024, 7\]"):
        begun(model, others)
    begun(model, others, exclude=["logits*"])


def test_a_network_that_slim_lacks_is_refused_with_those_it_has(build, checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match=r"inception_v1, .*and not for model\.name mnist_cnn"):
        begun(build("mnist_cnn", (8, 8, 1)), checkpoint)


@pytest.mark.parametrize("part", [".index", ".data-00000-of-00001"])
def test_a_damaged_checkpoint_is_refused(checkpoint: Path, tmp_path: Path, part: str) -> None:
    for each in (".index", ".data-00000-of-00001"):
        content = Path(f"{checkpoint}{each}").read_bytes()
        (tmp_path / f"model.ckpt{each}").write_bytes(content[: len(content) // 2] if each == part else content)
    with pytest.raises(DataError, match=r"train\.warm_start\.path: not a whole checkpoint"):
        slim_checkpoint.read(tmp_path / "model.ckpt")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_network_of_each_family_gives_slims_logits(build, tmp_path: Path, name: str) -> None:
    size = FAMILIES[name]
    (facts,) = [each for each in SLIM[name]["computed"] if each["size"] == size]
    model = build(name, (size, size, 3))
    begun(model, write(tmp_path / "model.ckpt", model))
    found, expected = logits(model(slim_values.images(size))).numpy(), np.array(facts["logits"])
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
