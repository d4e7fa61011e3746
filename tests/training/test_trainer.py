"""What only shows in a process of its own: devices, threads and XLA are set once in a process."""

import os
import subprocess
import sys

import pytest
from support import training
from support.training import ROOT

from perennial import files

# The same training in five ways, each in a process of its own: they share the import of TensorFlow alone. The
# third batch, the last of an epoch, has one example, which is fewer than devices.
SCRIPT = """
import dataclasses, json, os
import tensorflow as tf
from keras import layers
from perennial.models import MODELS
from perennial.models.chain import chain
from support.training import run

def normalized(image, classes, options):
    return chain(options.name, image, [
        layers.Conv2D(8, 3, name="conv"), layers.BatchNormalization(name="norm"), layers.ReLU(name="relu"),
        layers.Flatten(name="flatten"), layers.Dense(classes, name="logits"),
    ])

def report(name, values):
    fixed = {
        "deterministic": False, "intra_op_threads": 2, "inter_op_threads": 3, "max_steps": 4, "batch_size": 624,
    }
    changed = {f"train.{name}": value for name, value in {**fixed, **values}.items()}
    outcome = run({"dataset.validation_fraction": 0.13, **changed}, clean=True)
    losses = [step["loss"] for step in outcome.steps] + [outcome.record["evaluations"][-1]["loss"]]
    threads = tf.config.threading
    counts = threads.get_intra_op_parallelism_threads(), threads.get_inter_op_parallelism_threads()
    with open(f"{name}.json", "w") as file:
        json.dump({"losses": losses, "threads": counts}, file)

MODELS["mnist_cnn"] = dataclasses.replace(MODELS["mnist_cnn"], network=normalized)
for name, values in (
    ("synced", {"devices": "cpu:2", "batch_norm": "synced"}),
    ("per_replica", {"devices": "cpu:2", "batch_norm": "per_replica"}),
    ("one", {"devices": "cpu:1"}),
    ("xla", {"devices": "cpu:1", "xla": True}),
    ("float16", {"devices": "cpu:2", "batch_norm": "synced", "precision": "float16"}),
):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, name
    else:
        report(name, values)
        os._exit(0)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The losses of each way, of four updates and an evaluation, and the threads that it had."""
    folder = training.prepare(tmp_path_factory.mktemp("digits"), {"dataset.validation_fraction": 0.13})
    assert files.read_json(folder / "data/records/manifest.json")["splits"]["train"]["examples"] == 2 * 624 + 1
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, env=environment, check=True)
    return {file.stem: files.read_json(file) for file in folder.glob("*.json")}


def test_synced_batch_normalization_looks_at_the_batches_of_all_devices(found):
    assert found["synced"]["losses"] == pytest.approx(found["one"]["losses"], abs=1e-4)


def test_batch_normalization_of_each_replica_looks_at_its_own_part(found):
    losses = zip(found["per_replica"]["losses"], found["one"]["losses"], strict=True)
    assert max(abs(replica - one) for replica, one in losses) > 1e-3


def test_the_loss_scale_of_float16_is_found_on_several_devices(found):
    assert found["float16"]["losses"] == pytest.approx(found["one"]["losses"], abs=0.1)


def test_xla_changes_no_more_than_rounding(found):
    assert found["xla"]["losses"] == pytest.approx(found["one"]["losses"], abs=1e-4)
    assert found["xla"]["losses"] != found["one"]["losses"]


def test_threads_are_as_many_as_was_asked_for(found):
    assert found["xla"]["threads"] == [2, 3]
