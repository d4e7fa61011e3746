"""Synced batch normalization passes gradients through the statistics that it exchanges."""

import os
import subprocess
import sys

import numpy as np
import pytest
from support import forks

TOLERANCE = 1e-12  # relative to the largest value of a weight's gradient; float64 rounds at 1e-16


@pytest.fixture(scope="module")
def gradients(tmp_path_factory):
    """Gives the gradients of a step, by weight, on so many devices."""
    folder = tmp_path_factory.mktemp("gradients")

    def gradients(count, batch_norm):
        command = [forks.with_tensorflow(), "-m", "support.float64_gradients", str(count), batch_norm]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        subprocess.run(command, cwd=folder, env=environment, check=True)
        return dict(np.load(folder / f"{count}-{batch_norm}.npz"))

    return gradients


def differences(found, expected):
    return {
        path: np.abs(found[path] - values).max() / np.abs(values).max() for path, values in expected.items()
    }


def test_the_gradient_of_each_layer_is_that_of_one_device(gradients):
    one = gradients(1, "synced")
    found = differences(gradients(2, "synced"), one)
    assert {path: each for path, each in found.items() if each > TOLERANCE} == {}
    apart = differences(gradients(2, "per_replica"), one)
    assert all(each > 1e-3 for each in apart.values()), apart
