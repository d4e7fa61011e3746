"""The architectures and what the list says of them."""

from fnmatch import fnmatchcase
from typing import NamedTuple

import keras
import numpy as np
import pytest

from perennial.base.config.networks import NETWORKS
from perennial.base.errors import ConfigError
from perennial.data.preprocessing import PREPROCESSING
from perennial.model.models import MODELS


class Small(NamedTuple):
    """What the original of a small net has."""

    parameters: int
    dropout: float | None
    deviations: dict[str, float]  # of first kernels with a normal distribution that is cut at two
    decayed: tuple[str, ...]  # layers
    weight_decay: float = 0.0
    biased: tuple[str, ...] = ()  # layers whose first biases are 0.1; the others' are 0


CONVOLUTIONS = {"conv1": 0.05, "conv2": 0.05}
LENET = ("conv1", "conv2", "fc3", "logits")
CIFARNET = {**CONVOLUTIONS, "fc3": 0.04, "fc4": 0.04, "logits": 1 / 192}
TUTORIAL = {**CONVOLUTIONS, "local3": 0.04, "local4": 0.04, "logits": 1 / 192}
SMALL = {
    "mnist_cnn": Small(3_274_634, 0.4, {}, ("conv1", "conv2", "dense", "logits")),
    "lenet": Small(3_274_634, 0.5, dict.fromkeys(LENET, 0.1), LENET),
    "cifarnet": Small(1_756_426, 0.5, CIFARNET, ("fc3", "fc4"), 0.004, ("fc3", "fc4")),
    "cifar10_tutorial": Small(
        1_068_298, None, TUTORIAL, ("local3", "local4"), 0.004, ("conv2", "local3", "local4")
    ),
}


def weights(model: keras.Model) -> dict[str, np.ndarray]:
    return {weight.path: weight.numpy() for weight in model.weights}


def test_the_configuration_knows_every_model() -> None:
    assert set(NETWORKS) == set(MODELS)


def test_every_model_came_with_a_preprocessing_that_exists() -> None:
    assert {network.preprocessing for network in NETWORKS.values()} <= set(PREPROCESSING)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_net_starts_with_the_weights_of_its_original(build, name: str) -> None:
    keras.utils.set_random_seed(1)
    model, original = build(name), SMALL[name]
    found = weights(model)
    assert model.count_params() == NETWORKS[name].parameters == original.parameters
    for layer, deviation in original.deviations.items():
        values = found[f"{layer}/kernel"] / deviation
        # A normal distribution cut at 2 has a standard deviation of 0.8796.
        error = 5 / np.sqrt(values.size)
        assert np.abs(values).max() <= 2
        assert values.mean() == pytest.approx(0, abs=error)
        assert values.std() == pytest.approx(0.8796, abs=error)
    for path, value in found.items():
        if path.endswith("bias"):
            assert set(value.tolist()) == {float(np.float32(0.1)) if path[:-5] in original.biased else 0.0}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_net_has_the_l2_and_dropout_of_its_original_or_the_one_asked_for(build, name: str) -> None:
    def rates(**options: object) -> list[float]:
        layers = build(name, (8, 8, 3), **options).layers
        return [layer.rate for layer in layers if "dropout" in layer.name]

    own, original = MODELS[name], SMALL[name]
    assert rates() == ([] if original.dropout is None else [original.dropout])
    assert rates(dropout=0.25) == [0.25]
    paths = [path for path in weights(build(name)) if any(fnmatchcase(path, each) for each in own.decayed)]
    assert paths == [f"{layer}/kernel" for layer in original.decayed]
    assert own.weight_decay == original.weight_decay


@pytest.mark.parametrize(
    ("name", "side"), [("lenet", 3), ("cifarnet", 3), ("vgg_16", 31), ("fast_cnn", 8), ("inception_v3", 74)]
)
def test_images_that_are_too_small_are_refused_with_the_least_size(build, name: str, side: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} needs images of at least {side + 1} pixels.*image_size"):
        build(name, (64, side, 3))


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
