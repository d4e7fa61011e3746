"""Weights of Keras Applications from a local file."""

import logging
from pathlib import Path

import keras
import numpy as np
import pytest

from perennial.base.errors import ConfigError
from perennial.model.models import imagenet_weights
from perennial.model.models.model_folder import weights_sha256

# Keras' writer of HDF5 calls NumPy as NumPy 1 was called.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
IMAGES = np.random.default_rng(0).uniform(0, 255, (2, 32, 32, 3)).astype(np.float32)
MEANS = np.array([123.68, 116.779, 103.939], np.float32)


def published(file: Path, make: object, **arguments: object) -> keras.Model:
    """A network as Keras makes it, with weights that all differ, written as Keras writes them."""
    model = make(weights=None, classifier_activation=None, **arguments)
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(np.abs(random.normal(0.1, 0.05, weight.shape)) if "var" in weight.path else weight + 0.01)
    model.save_weights(file) if file.name.endswith(".weights.h5") else model.save(file)
    return model


def before(model: keras.Model, layer: str) -> keras.Model:
    return keras.Model(model.inputs[0], model.get_layer(layer).input)


SCALED = IMAGES / 127.5 - 1
APPLICATIONS = keras.applications


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make", "classifier", "images"),  # as the published network wants them, and as ours does
    [
        ("efficientnet_v2_b0", APPLICATIONS.EfficientNetV2B0, "predictions", (IMAGES, SCALED)),
        ("convnext_tiny", APPLICATIONS.ConvNeXtTiny, "convnext_tiny_head_dense", (IMAGES, SCALED)),
        (
            "keras_resnet_v1_50",
            APPLICATIONS.ResNet50,
            "predictions",
            ((IMAGES - MEANS)[..., ::-1], IMAGES - MEANS),
        ),
    ],
    ids=["efficientnet", "convnext", "resnet"],
)
def test_the_network_sees_what_the_published_one_sees(tmp_path, build, name, make, classifier, images) -> None:
    reference = published(tmp_path / "a.weights.h5", make, input_shape=(32, 32, 3))
    model = build(name, (32, 32, 3))
    imagenet_weights.load(model, tmp_path / "a.weights.h5")
    expected = before(reference, classifier)(images[0]).numpy()
    found = before(model, "logits")(images[1]).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_a_file_without_top_fills_the_same_layers(tmp_path: Path, build, caplog) -> None:
    caplog.set_level(logging.INFO, "perennial")
    file, top = tmp_path / "notop.h5", {"include_top": False, "alpha": 0.25, "input_shape": (32, 32, 3)}
    reference = published(file, keras.applications.MobileNet, **top)
    model = build("mobilenet_v1_025", (32, 32, 3))
    imagenet_weights.load(model, file)
    for layer in reference.layers[1:]:
        for weight, expected in zip(model.get_layer(layer.name).weights, layer.weights, strict=True):
            np.testing.assert_array_equal(weight, expected)
    assert "sha256 " in caplog.text
    assert caplog.text.endswith(": logits\n")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("imagenet") / "mobilenet.weights.h5"
    published(file, keras.applications.MobileNet, alpha=0.25)
    return file


@pytest.mark.fast_rows(
    "lenet-image0-must be null for lenet",
    "mobilenet_v1_025-image2-conv1/kernel of mobilenet_v1_025 needs the .*images of 3 channels",
)
@pytest.mark.parametrize(
    ("name", "image", "message"),
    [
        ("lenet", (28, 28, 1), "must be null for lenet"),
        ("mobilenet_v1_050", (32, 32, 3), "does not hold the weights of mobilenet_v1_050"),
        ("mobilenet_v1_025", (32, 32, 1), r"conv1/kernel of mobilenet_v1_025 needs the .*images of 3 channels"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_model_stays(file, build, name, image, message) -> None:
    model = build(name, image)
    before = weights_sha256(model)
    with pytest.raises(ConfigError, match=message):
        imagenet_weights.load(model, file)
    assert weights_sha256(model) == before


def test_a_file_that_is_none_is_refused(tmp_path: Path, build) -> None:
    file = tmp_path / "text.weights.h5"
    file.write_text("no HDF5")
    with pytest.raises(ConfigError, match="does not hold the weights"):
        imagenet_weights.load(build("mobilenet_v1_025", (32, 32, 3)), file)
