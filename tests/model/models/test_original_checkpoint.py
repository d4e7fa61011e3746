"""Checkpoints that the replaced programs wrote with TensorFlow 1, as start weights."""

import logging
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import original_programs

from benchmarks.peers import slim_values
from perennial.base.config.networks import NETWORKS
from perennial.base.config.training import WarmStartConfig
from perennial.base.errors import ConfigError, DataError
from perennial.model.models import logits, original_checkpoint
from perennial.model.training import warm_start
from perennial.model.training.warm_start import StartWeights


def write(prefix: Path, model: keras.Model, leave_out: str = "", **more: np.ndarray) -> Path:
    """A checkpoint as slim's training writes it: weights by slim's names, and the state of an optimizer."""
    values = dict(more)
    for path, name in original_checkpoint.variables(model).items():
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
    return build("mobilenet_v1_025", (32, 32, 3))


@pytest.fixture(scope="module")
def checkpoint(model: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("slim") / "model.ckpt-7", model)


def begun(model: keras.Model, prefix: Path, *, complete: bool = False, **options: object) -> None:
    settings = {"path": str(prefix), "averages": "auto", "exclude": [], "ignore_missing": False, **options}
    weights, averages = original_checkpoint.read(prefix)
    if settings["averages"] != "weights":
        weights = {**weights, **averages}
    start = StartWeights(imagenet=None, weights=weights, sha256="", averages=averages.keys(), original=True)
    warm_start.begin(model, start, WarmStartConfig.model_validate(settings), complete=complete)


def test_what_a_checkpoint_has_too_much_is_named(build, model, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    begun(model, write(tmp_path / "model.ckpt", model, Extra=np.zeros(3, np.float32)))
    assert "the checkpoint also has Extra, which mobilenet_v1_025 has not" in caplog.text


def test_what_a_checkpoint_lacks_is_named(model, tmp_path: Path) -> None:
    lacking = write(tmp_path / "model.ckpt", model, leave_out="logits/bias")
    with pytest.raises(ConfigError, match=r"model\.ckpt lacks logits/bias; to start them new"):
        begun(model, lacking)
    begun(model, lacking, ignore_missing=True)


def test_another_number_of_classes_is_left_out_by_the_pattern_of_its_layer(model, tmp_path: Path) -> None:
    scope = "MobilenetV1/Logits/Conv2d_1c_1x1"
    more = {f"{scope}/weights": np.zeros((1, 1, 256, 7), np.float32)}
    others = write(tmp_path / "model.ckpt", model, leave_out="logits/kernel", **more)
    with pytest.raises(ConfigError, match=r"logits/kernel \[1, 1, 256, 7\]"):
        begun(model, others)
    begun(model, others, exclude=["logits*"])


def test_a_network_that_slim_lacks_is_refused_with_those_it_has(build, checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match=r"inception_v1, .*and not for model\.name fast_cnn"):
        begun(build("fast_cnn", (32, 32, 3)), checkpoint)


@pytest.mark.parametrize("part", [".index", ".data-00000-of-00001"])
def test_a_damaged_checkpoint_is_refused(checkpoint: Path, tmp_path: Path, part: str) -> None:
    for each in (".index", ".data-00000-of-00001"):
        content = Path(f"{checkpoint}{each}").read_bytes()
        (tmp_path / f"model.ckpt{each}").write_bytes(content[: len(content) // 2] if each == part else content)
    with pytest.raises(DataError, match=r"train\.warm_start\.path: not a whole checkpoint"):
        original_checkpoint.read(tmp_path / "model.ckpt")


NORM = "MobilenetV1/Conv2d_0/BatchNorm"
AVERAGE = "ExponentialMovingAverage"


def averaged(model: keras.Model, *without: str) -> dict[str, np.ndarray]:
    """Averages of all variables, as slim makes them: batch statistics have averages, too."""
    names = original_checkpoint.variables(model)
    shapes = {names[weight.path]: tuple(weight.shape) for weight in model.weights}
    return {f"{name}/{AVERAGE}": np.full(shapes[name], 3, np.float32) for name in shapes.keys() - {*without}}


def test_averages_are_taken_for_batch_statistics_too(model, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    begun(model, write(tmp_path / "model.ckpt", model, **averaged(model)))
    assert all(np.all(weight.numpy() == 3) for weight in model.weights)
    assert f"took {len(model.weights)} weights" in caplog.text
    assert f"({len(model.weights)} of them moving averages); other layers: none" in caplog.text


def test_a_weight_without_an_average_is_named_or_refused(model, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    # Statistics often have none: TensorFlow averages only what is trained unless it is asked for more.
    some = averaged(model, f"{NORM}/beta", f"{NORM}/moving_mean", f"{NORM}/moving_variance")
    prefix = write(tmp_path / "model.ckpt", model, **some)
    begun(model, prefix)
    layer = model.get_layer("conv1_bn")
    for name in ("beta", "moving_mean"):
        expected = slim_values.weight(f"{NORM}/{name}", getattr(layer, name).shape)
        np.testing.assert_array_equal(getattr(layer, name), expected)
    assert "of them moving averages; without an average: conv1_bn/beta); other" in caplog.text
    with pytest.raises(ConfigError, match=r"averages, but .*ckpt has none of conv1_bn/beta; auto"):
        begun(model, prefix, averages="averages")


def test_a_checkpoint_of_averages_alone_is_read(model, tmp_path: Path) -> None:
    kernel = model.get_layer("logits").kernel
    name = original_checkpoint.variables(model)[kernel.path]
    average = {f"{name}/{AVERAGE}": np.ones(kernel.shape, np.float32)}
    begun(model, write(tmp_path / "model.ckpt", model, leave_out=kernel.path, **average))
    assert np.all(kernel.numpy() == 1)


@pytest.mark.slow
def test_without_training_only_an_auxiliary_classifier_may_be_missing(build, tmp_path: Path) -> None:
    model = build("inception_v4", (75, 75, 3))
    prefix, auxiliary = tmp_path / "model.ckpt", model.get_layer("aux_logits").kernel.path
    begun(model, write(prefix, model, leave_out=auxiliary), complete=True)
    lacking = write(prefix, model, leave_out="logits/kernel")
    with pytest.raises(ConfigError, match=r"lacks logits/kernel; train\.max_steps 0 needs all"):
        begun(model, lacking, complete=True)


def test_weights_that_are_not_finite_are_refused(model, tmp_path: Path) -> None:
    mean = {f"{NORM}/moving_mean": np.full(8, np.nan, np.float32)}
    path = model.get_layer("conv1_bn").moving_mean.path
    with pytest.raises(DataError, match=r"holds NaN or infinity in conv1_bn/moving_mean"):
        begun(model, write(tmp_path / "model.ckpt", model, leave_out=path, **mean))


def test_the_state_of_any_optimizer_is_left_out(model, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    slots = ("Adam", "Adam_1", "RMSProp_2", "Adadelta_1", "ema", f"{AVERAGE}/biased", f"{AVERAGE}/local_step")
    state = {f"{NORM}/beta/{slot}": np.zeros(8, np.float32) for slot in slots}
    begun(model, write(tmp_path / "model.ckpt", model, **state, beta1_power=np.float32(0.9)))
    assert "the checkpoint also has" not in caplog.text


def test_a_checkpoint_of_tensorflow_2_is_refused_by_its_name(model, tmp_path: Path) -> None:
    prefix = tf.train.Checkpoint(weight=tf.Variable(1.0)).save(tmp_path / "model.ckpt")
    with pytest.raises(
        DataError, match=r"a checkpoint of TensorFlow 2 \(tf\.train\.Checkpoint\), expected one of"
    ):
        original_checkpoint.read(Path(prefix))


def test_the_programs_of_the_networks_are_those_whose_checkpoints_are_read() -> None:
    programs = {name: facts.program for name, facts in NETWORKS.items() if facts.program}
    assert programs.keys() == original_checkpoint.scopes().keys()
    others = {name for name, program in programs.items() if program != "TF-Slim"}
    assert others == {"mnist_cnn", "cifar10_tutorial"}


@pytest.mark.fast_rows("True-cifar10_tutorial", "False-mnist_cnn", "True-lenet", "False-cifarnet")
@pytest.mark.parametrize("name", original_programs.NETWORKS)
@pytest.mark.parametrize("averages", [True, False])
def test_a_small_network_gives_the_probabilities_of_its_program(build, tmp_path, name, averages) -> None:
    shape, classes = (13, 12, NETWORKS[name].channels), 7  # an odd side distinguishes the paddings
    images = np.random.default_rng(0).normal(size=(5, *shape)).astype(np.float32)
    prefix = original_programs.train(name, tmp_path, images, classes)
    model = build(name, shape, classes=classes)
    begun(model, prefix, averages="averages" if averages else "weights")
    found = tf.nn.softmax(logits(model(images))).numpy()
    expected = original_programs.probabilities(name, prefix, images, classes, averages=averages)
    assert np.abs(found - expected).max() <= 1e-6
