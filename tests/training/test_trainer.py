"""What only shows in a process of its own: devices, threads and XLA are set once in a process."""

import json
import os
import subprocess
import sys

import pytest
from support import training
from support.training import ROOT

# The same training in five ways; prints the losses of each, and the threads that it had.
SCRIPT = """
import dataclasses, json
import keras, tensorflow as tf
from keras import layers
from perennial.models import MODELS
from support.training import run

def normalized(image, classes, options):
    return keras.Sequential([
        layers.Input(image, name="image"),
        layers.Conv2D(8, 3, name="conv"), layers.BatchNormalization(name="norm"), layers.ReLU(name="relu"),
        layers.Flatten(name="flatten"), layers.Dense(classes, name="logits"),
    ], name=options.name)

def losses(**values):
    fixed = {"deterministic": False, "intra_op_threads": 2, "inter_op_threads": 3, "max_steps": 4}
    outcome = run({f"train.{name}": value for name, value in {**fixed, **values}.items()}, clean=True)
    return [step["loss"] for step in outcome.steps] + [outcome.record["evaluations"][-1]["loss"]]

plain = MODELS["mnist_cnn"]
MODELS["mnist_cnn"] = dataclasses.replace(plain, network=normalized)
found = {
    "synced": losses(devices="cpu:2", batch_norm="synced"),
    "per_replica": losses(devices="cpu:2", batch_norm="per_replica"),
    "one": losses(devices="cpu:1"),
}
MODELS["mnist_cnn"] = plain
found |= {"plain": losses(devices="cpu:1"), "xla": losses(devices="cpu:1", xla=True)}
threads = tf.config.threading
found["threads"] = [threads.get_intra_op_parallelism_threads(), threads.get_inter_op_parallelism_threads()]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = training.prepare(tmp_path_factory.mktemp("digits"))
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_synced_batch_normalization_looks_at_the_batches_of_all_devices(found):
    assert found["synced"] == pytest.approx(found["one"], abs=1e-4)


def test_batch_normalization_of_each_replica_looks_at_its_own_part(found):
    assert max(abs(a - b) for a, b in zip(found["per_replica"], found["one"], strict=True)) > 1e-3


def test_xla_changes_no_more_than_rounding(found):
    assert found["xla"] == pytest.approx(found["plain"], abs=1e-4)
    assert found["xla"] != found["plain"]


def test_threads_are_as_many_as_was_asked_for(found):
    assert found["threads"] == [2, 3]
