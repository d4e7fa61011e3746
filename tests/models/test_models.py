"""The architectures."""

import numpy as np
import pytest

from perennial.config import ModelConfig
from perennial.models import MODELS, listing, mnist_cnn


def test_the_configuration_knows_every_model() -> None:
    annotation = ModelConfig.model_fields["name"].annotation
    assert set(annotation.__args__) == set(MODELS)


def test_mnist_cnn_has_the_weights_of_the_original() -> None:
    (row,) = [row for row in listing.listing() if row["name"] == "mnist_cnn"]
    assert row == {"name": "mnist_cnn", "parameters": 3_274_634, "image_size": 28, "channels": 1}


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (28, 1), (7, 3)])
def test_mnist_cnn_gives_a_logit_a_class_at_any_size(side: int, channels: int) -> None:
    model = mnist_cnn.build((side, side, channels), 10)
    assert model(np.zeros((2, side, side, channels), np.float32)).shape == (2, 10)


def test_mnist_cnn_ends_in_logits_and_not_in_probabilities() -> None:
    model = mnist_cnn.build((8, 8, 1), 10)
    logits = model(np.random.default_rng(0).normal(size=(4, 8, 8, 1)).astype(np.float32)).numpy()
    assert (logits < 0).any()
