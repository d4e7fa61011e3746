"""The networks of Keras Applications, one of each family, small."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from perennial.base.config.networks import NETWORKS
from perennial.model import models
from perennial.model.models import MODELS, model_folder
from perennial.model.models.imagenet_weights import MAKERS
from perennial.model.models.layers import Dropout

ASKED = 0.3  # dropout of the first model; the second has the architecture's own
QUICK = "mobilenet_v1_025"
SIDES = {
    "vgg_16": 32, "inception_v3": 75, "inception_resnet_v2": 75, "keras_resnet_v1_50": 32,
    "keras_resnet_v2_50": 32, "mobilenet_v1_025": 32, "mobilenet_v2_035": 32, "mobilenet_v3_small_075": 32,
    "efficientnet_v2_b0": 32, "convnext_tiny": 32,
}  # fmt: skip
OWN_DROPOUT = {
    "vgg_16": {"dropout_fc2": 0.5, "dropout_logits": 0.5}, "inception_v3": {"dropout_logits": 0.2},
    "inception_resnet_v2": {"dropout_logits": 0.2}, "keras_resnet_v1_50": {"dropout_logits": 0},
    "keras_resnet_v2_50": {"dropout_logits": 0}, "mobilenet_v1_025": {"dropout": 0.001},
    "mobilenet_v2_035": {"dropout_logits": 0.2}, "mobilenet_v3_small_075": {"dropout": 0.2},
    "efficientnet_v2_b0": {"top_dropout": 0.2}, "convnext_tiny": {"dropout_logits": 0},
}  # fmt: skip
# What grows with the image: VGG's first dense layer, and a kernel as large as the grid it sees.
OF_THE_SIZE = {
    "vgg_16": 512 * (7 * 7 - 1) * 4096,
    "inception_v3": 128 * (5 * 5 - 1) * 768,
    "inception_resnet_v2": 128 * (5 * 5 - 1) * 768,
}
AUXILIARY = {"inception_v3", "inception_resnet_v2"}


@dataclass
class Family:
    name: str
    model: keras.Model
    loaded: keras.Model
    folder: Path


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name == QUICK else pytest.mark.slow) for name in SIDES],
)
def family(request, build, describe, tmp_path_factory: pytest.TempPathFactory) -> Family:
    name, side = request.param, SIDES[request.param]
    model = build(name, (side, side, 3), dropout=ASKED)  # its description says nothing of that
    folder = tmp_path_factory.mktemp("models") / "weights"
    model_folder.save(folder, model, describe(model))
    return Family(name, model, model_folder.load(folder)[0], folder)


def test_it_gives_logits_and_where_slim_has_one_those_of_an_auxiliary_classifier(family: Family) -> None:
    images = np.random.default_rng(0).uniform(-1, 1, (2, *family.model.input.shape[1:])).astype(np.float32)
    outputs = family.model(images)
    heads = outputs if isinstance(outputs, dict) else {"logits": outputs}
    assert set(heads) == {"logits"} | ({"aux_logits"} if family.name in AUXILIARY else set())
    assert {head.shape for head in heads.values()} == {(2, 10)}
    assert np.isfinite(models.logits(outputs)).all()


def test_the_listed_parameters_are_the_built_ones(family: Family) -> None:
    missing = OF_THE_SIZE.get(family.name, 0)
    assert NETWORKS[family.name].parameters == family.model.count_params() + missing


def test_no_random_state_is_saved(family: Family) -> None:
    stored = [name for name, _ in tf.train.list_variables(str(family.folder / model_folder.WEIGHTS))]
    assert [name for name in stored if "seed" in name] == []


def test_the_head_holds_what_depends_on_the_classes(family: Family) -> None:
    patterns = MODELS[family.name].head
    of_classes = {weight.path.split("/")[0] for weight in family.model.weights if weight.shape[-1] == 10}
    assert of_classes == {"logits", "aux_logits"} & {layer.name for layer in family.model.layers}
    assert all(any(fnmatchcase(layer, pattern) for pattern in patterns) for layer in of_classes)


def test_l2_looks_at_slims_kernels_and_biases(family: Family) -> None:
    patterns = MODELS[family.name].decayed
    spared = {
        weight.path
        for layer in family.model.layers
        if isinstance(layer, keras.layers.DepthwiseConv2D) and family.name.startswith("mobilenet")
        for weight in layer.weights
    }
    paths = [weight.path for weight in family.model.weights]
    decayed = {path for path in paths if any(fnmatchcase(path, pattern) for pattern in patterns)}
    kinds = ("kernel", "bias") if family.name == "inception_resnet_v2" else "kernel"
    assert decayed == {path for path in paths if path.endswith(kinds)} - spared


def test_dropout_is_the_originals_or_the_one_that_was_asked_for(family: Family) -> None:
    asked, own = (
        {
            layer.name: layer.rate
            for layer in model.layers
            if isinstance(layer, Dropout) and not layer.noise_shape
        }
        for model in (family.model, family.loaded)
    )
    assert own == OWN_DROPOUT[family.name]
    assert asked == dict.fromkeys(own, ASKED)


def test_dropped_branches_keep_their_own_share(family: Family) -> None:
    asked, own = (
        [layer.rate for layer in model.layers if isinstance(layer, Dropout) and layer.noise_shape]
        for model in (family.model, family.loaded)
    )
    assert asked == own
    assert (len(own) > 5) == family.name.startswith("efficientnet")


@pytest.mark.parametrize("name", [QUICK, pytest.param("mobilenet_v3_small_075", marks=pytest.mark.slow)])
def test_it_takes_grey_images(build, name: str) -> None:
    assert build(name, (32, 32, 1))(np.zeros((2, 32, 32, 1), np.float32)).shape == (2, 10)


def test_a_name_of_keras_applications_is_its_network() -> None:
    made = {each.keras: MAKERS[name] for name, each in NETWORKS.items() if each.keras is not None}
    assert made == {name: getattr(keras.applications, name) for name in made}
    assert set(made.values()) == {each for each in MAKERS.values() if not isinstance(each, partial)}
