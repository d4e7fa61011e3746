"""The fast recipe through the stages: a prepared first layer, flips in turn, exact resumption, exports."""

import logging
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
from support.training import run

from perennial.errors import ConfigError
from perennial.export.formats import FORMATS
from perennial.stages.evaluate import evaluate
from perennial.stages.export import export
from perennial.training.checkpoints import committed

VALUES = {
    "model.name": "fast_cnn",
    "preprocessing.name": "shifted",
    "preprocessing.image_size": 16,
    "train.augmentation.alternating_flip": True,
    "train.max_steps": 4,
    "train.batch_size": 200,
    "train.optimizer": "momentum",
    "train.optimizers.momentum.nesterov": True,
    "checkpoints.interval_steps": 1,
}


@pytest.fixture
def done(here):
    """A training of four steps."""
    return run(VALUES)


def test_the_first_layer_is_computed_from_training_images_and_stays(done):
    kernels = [done.checkpoint(step)["whitening/kernel"] for step in (1, 4)]
    np.testing.assert_array_equal(*kernels)
    np.testing.assert_array_equal(kernels[0][..., 4:], -kernels[0][..., :4])
    assert np.ptp(done.checkpoint(4)["whitening/bias"]) > 0


def test_a_resumed_training_ends_with_the_same_weights(done, caplog):
    caplog.set_level(logging.INFO, "perennial")
    for path in committed(done.folder):
        if int(path.name[5:]) > 2:
            shutil.rmtree(path)
    shutil.rmtree("models")
    again = run(VALUES)
    assert "resumed from step 2" in caplog.text
    assert all(np.array_equal(again.weights[path], values) for path, values in done.weights.items())


def test_its_exports_agree_with_it(here):
    formats = ["tflite_float32", "tflite_float16", "frozen_graph"]
    if all(find_spec(package) for package in FORMATS["onnx"].packages):
        formats.append("onnx")
    outcome = run({**VALUES, "export.formats": formats}, evaluate, export)
    assert (outcome.config.paths.export / "assets.extra" / "model_float32.tflite").exists()


def test_images_that_the_poolings_would_use_up_are_refused(here):
    with pytest.raises(ConfigError, match="at least 9 for fast_cnn"):
        run({**VALUES, "preprocessing.image_size": 8})
