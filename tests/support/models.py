"""Models of any architecture, built as a run builds them."""

from collections.abc import Callable, Iterator

import keras
import pytest

from perennial.base.config.data import ModelConfig
from perennial.base.config.networks import NETWORKS
from perennial.data.preprocessing import ImageSpec
from perennial.model.models import MODELS, model_folder
from perennial.model.models.model_folder import Description


def model_options(name: str, **changes: object) -> ModelConfig:
    values = {"dropout": None, "conv_stddev": None, "labels_offset": 0}
    return ModelConfig.model_validate({"name": name, **values, **changes})


@pytest.fixture(scope="session")
def build() -> Callable[..., keras.Model]:
    """Builds by name, at the architecture's own size where no image is given."""

    def make(
        name: str, image: tuple[int, int, int] | None = None, classes: int = 10, **changes: object
    ) -> keras.Model:
        architecture = MODELS[name]
        own = (NETWORKS[name].image_size, NETWORKS[name].image_size, NETWORKS[name].channels)
        return architecture.build(image or own, classes, model_options(name, **changes))

    return make


@pytest.fixture(scope="session")
def describe() -> object:
    """The description of a model that takes square images as they are."""

    def make(model: keras.Model, classes: int = 10, *, raw: int | None = None) -> Description:
        _, side, _, channels = model.input.shape
        pixels = ImageSpec(
            preprocessing="rescale", height=raw or side, width=raw or side, channels=channels,
            image_size=side, grayscale=False, fast=True,
        )  # fmt: skip
        return Description(
            name=model.name,
            options=model_options(model.name),
            classes=[f"class {number}" for number in range(classes)],
            pixels=pixels,
            data="d",
            weights_sha256=model_folder.weights_sha256(model),
        )

    return make


@pytest.fixture
def policy() -> Iterator[object]:
    """Sets the precision of layers made in the test."""
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)
