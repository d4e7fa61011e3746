"""The fast recipe through the stages: a prepared first layer, flips in turn, exact resumption, exports."""

import contextlib
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
from support.training import parameters, run

from perennial.base.errors import ConfigError
from perennial.model.export.export_formats import FORMATS
from perennial.stages.evaluate import evaluate
from perennial.stages.export import export

VALUES = {
    "model.name": "fast_cnn", "model.channels": [8, 16, 16], "preprocessing.name": "shifted",
    "preprocessing.image_size": 16, "train.augmentation.alternating_flip": True, "train.max_steps": 4,
    "train.batch_size": 200, "train.optimizer": "momentum", "train.optimizer_options.nesterov": True,
    "checkpoints.interval_steps": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(digits, tmp_path_factory):
    """A folder in which a training of four steps has ended, and what it left."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(digits, folder, dirs_exist_ok=True)
    with contextlib.chdir(folder):
        return folder, run(VALUES)


@pytest.fixture
def done(trained, tmp_path, monkeypatch, forked):
    """What it left, in a copy of that folder which the test works in."""
    folder, outcome = trained
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return outcome


@pytest.mark.slow
def test_the_first_layer_is_computed_from_training_images_and_stays(done):
    kernels = [done.checkpoint(step)["whitening/kernel"] for step in (1, 4)]
    np.testing.assert_array_equal(*kernels)
    np.testing.assert_array_equal(kernels[0][..., 4:], -kernels[0][..., :4])
    assert np.ptp(done.checkpoint(4)["whitening/bias"]) > 0


@pytest.mark.slow
def test_its_exports_agree_with_it(done):
    formats = ["tflite_float32", "tflite_float16", "frozen_graph", "onnx"]
    there = [name for name in formats if all(find_spec(package) for package in FORMATS[name].packages)]
    chosen = parameters({**VALUES, "export.formats": there})
    evaluate(chosen)
    export(chosen)
    assert (chosen.paths.export / "assets.extra" / "model_float32.tflite").exists()


def test_images_that_the_poolings_would_use_up_are_refused(here):
    with pytest.raises(ConfigError, match="at least 9 for fast_cnn"):
        run({**VALUES, "preprocessing.image_size": 8})
