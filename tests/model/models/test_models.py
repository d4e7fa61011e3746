"""The architectures and what the list says of them."""

from fnmatch import fnmatchcase

import keras
import numpy as np
import pytest

from perennial.base.config.networks import NETWORKS
from perennial.base.errors import ConfigError
from perennial.data.preprocessing import PREPROCESSING
from perennial.model.models import MODELS

SMALL = {"mnist_cnn": 3_274_634, "lenet": 3_274_634, "cifarnet": 1_756_426, "cifar10_tutorial": 1_068_298}


def weights(model: keras.Model) -> dict[str, np.ndarray]:
    return {weight.path: weight.numpy() for weight in model.weights}


def decayed(model: keras.Model, name: str) -> list[str]:
    patterns = MODELS[name].decayed
    return [path for path in weights(model) if any(fnmatchcase(path, pattern) for pattern in patterns)]


def test_the_configuration_knows_every_model() -> None:
    assert set(NETWORKS) == set(MODELS)


def test_every_model_came_with_a_preprocessing_that_exists() -> None:
    assert {network.preprocessing for network in NETWORKS.values()} <= set(PREPROCESSING)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_net_has_the_weights_of_the_original(build, name: str) -> None:
    assert build(name).count_params() == NETWORKS[name].parameters == SMALL[name]


@pytest.mark.fast_rows("image0-mnist_cnn", "image1-lenet", "image2-cifarnet", "image0-cifar10_tutorial")
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("image", [(8, 8, 1), (7, 9, 3), (31, 31, 3)])
def test_a_small_net_gives_a_logit_a_class_at_any_size(build, name: str, image: tuple[int, int, int]) -> None:
    keras.utils.set_random_seed(1)
    images = np.random.default_rng(0).normal(size=(8, *image)).astype(np.float32)
    logits = build(name, image, classes=7)(images).numpy()
    assert logits.shape == (8, 7)
    assert (logits < 0).any()  # and no probabilities


@pytest.mark.parametrize(
    ("name", "side"), [("lenet", 3), ("cifarnet", 3), ("vgg_16", 31), ("fast_cnn", 8), ("inception_v3", 74)]
)
def test_images_that_are_too_small_are_refused_with_the_least_size(build, name: str, side: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} needs images of at least {side + 1} pixels.*image_size"):
        build(name, (64, side, 3))


@pytest.mark.fast_rows(
    "lenet-conv1/kernel-0.1", "cifarnet-fc3/kernel-0.04", "cifar10_tutorial-logits/kernel-0.005208333333333333"
)
@pytest.mark.parametrize(
    ("name", "path", "stddev"),
    [
        ("lenet", "conv1/kernel", 0.1),
        ("lenet", "conv2/kernel", 0.1),
        ("lenet", "fc3/kernel", 0.1),
        ("lenet", "logits/kernel", 0.1),
        ("cifarnet", "conv1/kernel", 0.05),
        ("cifarnet", "conv2/kernel", 0.05),
        ("cifarnet", "fc3/kernel", 0.04),
        ("cifarnet", "fc4/kernel", 0.04),
        ("cifarnet", "logits/kernel", 1 / 192),
        ("cifar10_tutorial", "conv1/kernel", 0.05),
        ("cifar10_tutorial", "conv2/kernel", 0.05),
        ("cifar10_tutorial", "local3/kernel", 0.04),
        ("cifar10_tutorial", "local4/kernel", 0.04),
        ("cifar10_tutorial", "logits/kernel", 1 / 192),
    ],
)
def test_first_weights_are_a_normal_distribution_cut_at_two_deviations(build, name, path, stddev) -> None:
    keras.utils.set_random_seed(1)
    values = weights(build(name))[path] / stddev
    # A normal distribution cut at 2 has a standard deviation of 0.8796.
    error = 5 / np.sqrt(values.size)
    assert np.abs(values).max() <= 2
    assert values.mean() == pytest.approx(0, abs=error)
    assert values.std() == pytest.approx(0.8796, abs=error)


def test_the_tutorials_old_deviation_is_an_option_of_its_convolutions_alone(build) -> None:
    values = weights(build("cifar10_tutorial", conv_stddev=1e-4))
    assert values["conv1/kernel"].std() == pytest.approx(0.88e-4, rel=0.1)
    assert values["local3/kernel"].std() == pytest.approx(0.88 * 0.04, rel=0.1)
    with pytest.raises(ConfigError, match=r"conv_stddev must be null for lenet, got 0\.1"):
        build("lenet", conv_stddev=0.1)


def test_channels_are_an_option_of_the_fast_network_alone(build) -> None:
    shapes = {path: value.shape for path, value in weights(build("fast_cnn", channels=[8, 24, 32])).items()}
    found = [shapes[f"block{number}_{part}_conv/kernel"][2:] for number in (1, 2, 3) for part in (1, 2)]
    assert found == [(24, 8), (8, 8), (8, 24), (24, 24), (24, 32), (32, 32)]
    assert shapes["logits/kernel"] == (32, 10)
    with pytest.raises(ConfigError, match=r"channels must be null for lenet, got \[8, 24, 32\]"):
        build("lenet", channels=[8, 24, 32])


@pytest.mark.parametrize(
    ("name", "biases"),
    [
        ("mnist_cnn", {"conv1": 0, "conv2": 0, "dense": 0, "logits": 0}),
        ("lenet", {"conv1": 0, "conv2": 0, "fc3": 0, "logits": 0}),
        ("cifarnet", {"conv1": 0, "conv2": 0, "fc3": 0.1, "fc4": 0.1, "logits": 0}),
        ("cifar10_tutorial", {"conv1": 0, "conv2": 0.1, "local3": 0.1, "local4": 0.1, "logits": 0}),
    ],
)
def test_first_biases_are_the_originals(build, name: str, biases: dict[str, float]) -> None:
    found = {path: set(value.tolist()) for path, value in weights(build(name)).items() if path.endswith("bias")}
    assert found == {f"{layer}/bias": {float(np.float32(bias))} for layer, bias in biases.items()}


@pytest.mark.parametrize(
    ("name", "weight_decay", "layers"),
    [
        ("mnist_cnn", 0.0, ["conv1", "conv2", "dense", "logits"]),
        ("lenet", 0.0, ["conv1", "conv2", "fc3", "logits"]),
        ("cifarnet", 0.004, ["fc3", "fc4"]),
        ("cifar10_tutorial", 0.004, ["local3", "local4"]),
    ],
)
def test_l2_looks_at_the_layers_of_the_original(build, name, weight_decay, layers) -> None:
    assert decayed(build(name), name) == [f"{layer}/kernel" for layer in layers]
    assert MODELS[name].weight_decay == weight_decay


@pytest.mark.parametrize(
    ("name", "own"), [("mnist_cnn", 0.4), ("lenet", 0.5), ("cifarnet", 0.5), ("cifar10_tutorial", None)]
)
def test_dropout_is_the_originals_or_the_one_that_was_asked_for(build, name: str, own: float | None) -> None:
    def rates(**options: object) -> list[float]:
        layers = build(name, (8, 8, 3), **options).layers
        return [layer.rate for layer in layers if "dropout" in layer.name]

    assert rates() == ([] if own is None else [own])
    assert rates(dropout=0.25) == [0.25]
