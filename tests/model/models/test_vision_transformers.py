"""The vision transformers, compared with KerasHub's own models."""

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np
import pytest

from perennial.base.config import networks
from perennial.base.config.networks import NETWORKS
from perennial.base.errors import ConfigError
from perennial.model.models import MODELS, Architecture, imagenet_weights
from perennial.model.models import vision_transformers as transformers

# Networks of one block; the published ones take seconds to build.
SIDE = 64
TINY = transformers.Transformer(kind="DeiT", blocks=1, heads=3, width=48, published_size=SIDE)
OTHER = transformers.Transformer(kind="ViT", blocks=1, heads=2, width=32, published_size=SIDE)
PRESETS = {**keras_hub.models.ViTBackbone.presets, **keras_hub.models.DeiTBackbone.presets}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two networks are small ones."""
    for name, transformer in {"deit_tiny_16": TINY, "vit_base_16": OTHER}.items():
        monkeypatch.setitem(transformers.TRANSFORMERS, name, transformer)
        monkeypatch.setitem(MODELS, name, Architecture(network=transformer.network))


@pytest.fixture(scope="module")
def preset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a preset of DeiT, with random weights."""
    file = tmp_path_factory.mktemp("preset") / "model.weights.h5"
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of NumPy, about Keras
        TINY._backbone((SIDE, SIDE, 3), "deit_tiny_16").save_weights(file)
    return file


@pytest.fixture(scope="module")
def published(build: Any, preset: Path) -> keras.Model:
    """A small network with the weights of the preset."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(transformers.TRANSFORMERS, "deit_tiny_16", TINY)
        patch.setitem(MODELS, "deit_tiny_16", Architecture(network=TINY.network))
        model: keras.Model = build("deit_tiny_16", (SIDE, SIDE, 3))
        imagenet_weights.load(model, preset)
    return model


def features(model: keras.Model, images: np.ndarray) -> np.ndarray:
    return keras.Model(model.input, model.get_layer("features").output)(images).numpy()


def paths(model: keras.Model) -> list[tuple[str, tuple[int, ...]]]:
    return [(variable.path, tuple(variable.shape)) for variable in model.variables]


@pytest.mark.parametrize("name", transformers.TRANSFORMERS)
def test_the_published_preset_of_each_exists_with_its_number_of_parameters(name: str) -> None:
    transformer, preset = transformers.TRANSFORMERS[name], networks.PRESETS[name]
    head = (transformer.width + 1) * 10
    assert NETWORKS[name].parameters == PRESETS[preset]["metadata"]["params"] + head
    assert f"_{transformer.published_size}_" in preset
    assert NETWORKS[name].image_size == transformer.published_size


def test_the_address_names_the_preset() -> None:
    found = networks.published("vit_base_32", 224)
    assert found is not None
    assert (
        found.url == "https://huggingface.co/keras/vit_base_patch32_384_imagenet/resolve/main/model.weights.h5"
    )
    assert found.file == Path("vit_base_patch32_384_imagenet", "model.weights.h5")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["vit_base_16", "vit_base_32", "deit_tiny_16", "deit_small_16", "deit_base_16"]
)
def test_a_network_has_the_parameters_that_the_list_says(build: Any, name: str) -> None:
    side = NETWORKS[name].image_size
    assert build(name, (side, side, 3)).count_params() == NETWORKS[name].parameters


@pytest.mark.usefixtures("small")
def test_equal_calls_give_equal_names(build: Any, published: keras.Model) -> None:
    model = build("deit_tiny_16", (SIDE, SIDE, 3))
    assert [layer.name for layer in model.layers] == [layer.name for layer in published.layers]
    assert paths(model) == paths(published)
    assert not [path for path, _ in paths(model) if "seed" in path]  # dropout has no random state


def test_published_weights_give_the_features_of_kerashub(published: keras.Model, preset: Path) -> None:
    images = np.random.default_rng(0).uniform(-1, 1, (2, SIDE, SIDE, 3)).astype(np.float32)
    original = TINY._backbone((SIDE, SIDE, 3), "deit_tiny_16")
    original.load_weights(preset)
    taken = ((images + 1) / 2 - np.array(transformers.MEAN)) / np.array(transformers.DEVIATION)
    expected = original(taken.astype(np.float32)).numpy()[:, 0]
    np.testing.assert_allclose(features(published, images), expected, atol=2e-5)


@pytest.mark.usefixtures("small")
def test_positions_are_interpolated_to_another_image_size_and_the_head_stays_new(
    build: Any, preset: Path, published: keras.Model, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perennial")
    model = build("deit_tiny_16", (32, 32, 3))
    before = model.get_layer("logits").get_weights()
    imagenet_weights.load(model, preset)
    assert caplog.text.strip().endswith("newly initialized: logits")
    np.testing.assert_array_equal(model.get_layer("logits").get_weights()[0], before[0])
    (own,) = (each.numpy() for each in model.variables if transformers.POSITIONS in each.path)
    (whole,) = (each.numpy() for each in published.variables if transformers.POSITIONS in each.path)
    np.testing.assert_array_equal(own[:, :2], whole[:, :2])  # of the two tokens before the patches
    means = [positions[0, 2:].mean(0) for positions in (own, whole)]
    np.testing.assert_allclose(means[0], means[1], atol=0.02)


def test_a_constant_embedding_stays_constant() -> None:
    positions = np.concatenate([np.full((1, 3), 9.0), np.full((4 * 4, 3), 0.5)])
    resized = transformers.resized_positions(positions, (1 + 7 * 7, 3), 1)
    np.testing.assert_allclose(
        resized, np.concatenate([np.full((1, 3), 9.0), np.full((49, 3), 0.5)]), atol=1e-6
    )


@pytest.mark.usefixtures("small")
def test_weights_of_another_network_change_nothing(build: Any, preset: Path) -> None:
    model = build("vit_base_16", (32, 32, 3))
    before = model.get_weights()
    with pytest.raises(ConfigError, match=r"does not hold the weights of vit_base_16.*model\.weights\.h5"):
        imagenet_weights.load(model, preset)
    assert all(map(np.array_equal, before, model.get_weights()))


def test_a_size_between_two_patches_is_refused(build: Any) -> None:
    with pytest.raises(ConfigError, match=r"multiples of 16 pixels, got 40x40; set preprocessing\.image_size"):
        build("deit_tiny_16", (40, 40, 3))


def test_a_missing_package_is_named(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ConfigError, match=r"needs the package keras-hub.*`perennial add keras-hub`"):
        build("deit_tiny_16", (32, 32, 3))
