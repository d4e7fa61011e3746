"""Small data sets for the tests of stages."""

import pytest
from support import raw


@pytest.fixture
def small(load):
    """Parameters with raw files like MNIST's: 40 examples of 3x4 pixels to train and validate on, 20 to test.

    The classes come in turn, and an image is filled with its number, which for test images counts from 100;
    10 examples are held out.
    """
    config = load(**{"dataset.name": "mnist", "dataset.validation_fraction": 0.25})
    raw.write_mnist(config)
    return config


@pytest.fixture
def pictures(load):
    """Parameters with a folder of one's own: 12 pictures of each of three classes, PNG and JPEG in turn."""
    config = load(
        **{"dataset.name": "image_folder", "dataset.path": "own", "dataset.validation_fraction": 0.25}
    )
    raw.write_pictures(config.dataset.path)
    return config
