"""Moving averages of the weights, against NumPy and TensorFlow's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from support import training
from support.training import ROOT

import perennial
from perennial.base import documents
from perennial.base.config.training import AveragesConfig, LookaheadConfig
from perennial.model.training.train_step import Averages, Lookahead

UPDATES = np.random.default_rng(5).normal(size=(20, 3, 2)).astype(np.float32)  # of the kernel


def model() -> keras.Model:
    """One dense layer whose kernel is to be averaged, and a normalization with statistics."""
    layers = [keras.Input([3]), keras.layers.Dense(2, name="dense"), keras.layers.BatchNormalization()]
    return keras.Sequential(layers)


def train(net: keras.Model, averages: Averages | Lookahead) -> None:
    """Adds each of UPDATES to the kernel."""
    kernel = net.get_layer("dense").kernel

    @tf.function(autograph=False)
    def step(change: tf.Tensor, number: tf.Tensor) -> None:
        kernel.assign_add(change)
        averages.update(number)

    for number, change in enumerate(UPDATES):
        step(tf.constant(change), tf.constant(number, tf.int64))


def kernels(first: NDArray[np.float32]) -> NDArray[np.float64]:
    """The kernel after each update."""
    return first + np.cumsum(UPDATES.astype(np.float64), axis=0)


def updated(decay: float | None, *, dynamic: bool = False) -> tuple[keras.Model, Averages, NDArray[np.float32]]:
    """A model after all updates, its averages, and the first values of its kernel."""
    net = model()
    first = net.get_layer("dense").kernel.numpy()
    averages = Averages(net, AveragesConfig(decay=decay, dynamic=dynamic))
    train(net, averages)
    return net, averages, first


@pytest.mark.parametrize(("period", "share"), [(5, 0.5), (3, 0.8), (1, 1.0)])
def test_slow_weights_move_every_few_steps_and_replace_the_others(period, share):
    net = model()
    slow = fast = net.get_layer("dense").kernel.numpy().astype(np.float64)
    lookahead = Lookahead(net, LookaheadConfig(period=period, step=share))
    train(net, lookahead)
    for number, change in enumerate(UPDATES, 1):
        fast = fast + change
        if number % period == 0:
            slow = fast = slow + share * (fast - slow)
    np.testing.assert_allclose(net.get_layer("dense").kernel.numpy(), fast, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lookahead.variables[0].numpy(), slow, rtol=1e-4, atol=1e-5)


def test_without_a_period_there_are_no_slow_weights():
    assert Lookahead(model(), LookaheadConfig()).variables == []


@pytest.mark.parametrize(
    ("decay", "dynamic"),
    [(0.9, False), (0.9999, True), (0.5, True)],  # dynamic reaches 0.5 within the twenty
)
def test_averages_are_what_the_formula_gives(decay: float, dynamic: bool) -> None:
    _, averages, first = updated(decay, dynamic=dynamic)
    expected = first.astype(np.float64)
    for done, kernel in enumerate(kernels(first), start=1):
        least = min(decay, (1 + done) / (10 + done)) if dynamic else decay
        expected = least * expected + (1 - least) * kernel
    np.testing.assert_allclose(averages.variables[0].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_averages_are_those_of_the_tutorial() -> None:
    """Its train op increments the global step and then averages, with that step as num_updates."""
    _, averages, first = updated(0.9999, dynamic=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.get_variable("step", initializer=np.int64(0), use_resource=True, trainable=False)
        kernel = tf.compat.v1.get_variable("kernel", initializer=first, use_resource=True)
        change = tf.compat.v1.placeholder(tf.float32, [3, 2])
        descent = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        applied = descent.apply_gradients([(-change, kernel)], global_step=step)
        original = tf.train.ExponentialMovingAverage(0.9999, step)
        with tf.control_dependencies([applied]):
            averaged = original.apply([kernel])
        session.run(tf.compat.v1.global_variables_initializer())
        for each in UPDATES:
            session.run(averaged, {change: each})
        expected = session.run(original.average(kernel))
    np.testing.assert_allclose(averages.variables[0].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_what_is_not_trained_keeps_its_value_to_the_bit() -> None:
    net = model()
    bias = net.get_layer("dense").bias
    bias.assign([0.1, -0.7])
    averages = Averages(net, AveragesConfig(decay=0.9999, dynamic=True))
    train(net, averages)
    np.testing.assert_array_equal(averages.variables[1].numpy(), bias.numpy())


def test_statistics_of_normalization_are_not_averaged_again() -> None:
    net = model()
    averages = Averages(net, AveragesConfig(decay=0.9, dynamic=False))
    assert len(averages.variables) == len(net.trainable_variables) == len(net.weights) - 2


def weights(net: keras.Model) -> list[bytes]:
    return [weight.numpy().tobytes() for weight in net.trainable_variables]


def test_the_model_has_the_averages_while_it_is_evaluated_and_its_own_weights_before_and_after() -> None:
    net, averages, _ = updated(0.9)
    own = weights(net)
    with averages.swapped():
        assert weights(net) == [average.numpy().tobytes() for average in averages.variables] != own
    assert weights(net) == own


class Stopped(BaseException):
    """What a signal raises."""


def test_the_weights_come_back_when_the_evaluation_is_interrupted() -> None:
    net, averages, _ = updated(0.9)
    own = weights(net)
    with pytest.raises(Stopped), averages.swapped():
        raise Stopped
    assert weights(net) == own


def test_the_weights_come_back_when_their_return_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    net, averages, _ = updated(0.9)
    own = weights(net)

    def stop() -> None:
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped), averages.swapped():
        patch.setattr(averages, "restore", stop)
    averages.restore()
    assert weights(net) == own


def test_without_a_decay_nothing_is_kept() -> None:
    net, averages, _ = updated(None, dynamic=True)
    own = weights(net)
    with averages.swapped():
        assert weights(net) == own
    assert averages.variables == []


TWO_REPLICAS = """
import json
import keras, tensorflow as tf
from perennial.base.config.training import AveragesConfig, LookaheadConfig
from perennial.model.training.train_step import Averages, Lookahead

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
with strategy.scope():
    net = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    averages = Averages(net, AveragesConfig(decay=0.5, dynamic=False))
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build(net.trainable_variables)

@tf.function(autograph=False)
def step(number):
    strategy.run(lambda: optimizer.apply([tf.constant([[-1.0]])], net.trainable_variables))
    averages.update(number)

def copies(variable):
    return [copy.numpy().item() for copy in strategy.experimental_local_results(variable)]

kernel = net.trainable_variables[0].value
seen = []
for number in range(2):
    step(tf.constant(number, tf.int64))
    seen.append([copies(kernel), copies(averages.variables[0])])
with averages.swapped():
    seen.append([copies(kernel), copies(averages.variables[0])])
seen.append([copies(kernel), copies(averages.variables[0])])
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_each_device_has_the_same_averages() -> None:
    # In a process of its own, because the CPU cannot be split once TensorFlow has used it.
    done = subprocess.run(
        [sys.executable, "-c", TWO_REPLICAS],
        env={**os.environ, "PYTHONPATH": str(Path(perennial.__file__).parents[1])},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [
        [[3.0, 3.0], [2.0, 2.0]],
        [[5.0, 5.0], [3.5, 3.5]],
        [[3.5, 3.5], [3.5, 3.5]],
        [[5.0, 5.0], [3.5, 3.5]],
    ]


# The same training in five ways, each in a process of its own: they share the import of TensorFlow alone. The
# third batch, the last of an epoch, has one example, which is fewer than devices.
SCRIPT = """
import dataclasses, json, os
import tensorflow as tf
from keras import layers
from perennial.model.models import MODELS
from perennial.model.models.layers import layer_chain
from support.training import run

def normalized(image, classes, options):
    return layer_chain(options.name, image, [
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

AUGMENTED = {
    "augmentation.operations": 2, "augmentation.erasing": 0.5, "augmentation.mixup": 0.2,
    "augmentation.cutmix": 1.0, "lookahead.period": 2,
}
MODELS["mnist_cnn"] = dataclasses.replace(MODELS["mnist_cnn"], network=normalized)
for name, values in (
    ("synced", {"devices": "cpu:2", "batch_norm": "synced"}),
    ("per_replica", {"devices": "cpu:2", "batch_norm": "per_replica"}),
    ("one", {"devices": "cpu:1"}),
    ("xla", {"devices": "cpu:1", "xla": True}),
    ("augmented", {"devices": "cpu:1", **AUGMENTED}),
    ("augmented on two", {"devices": "cpu:2", "batch_norm": "synced", **AUGMENTED}),
    ("augmented by XLA", {"devices": "cpu:1", "xla": True, **AUGMENTED}),
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
    assert (
        documents.read_json(folder / "data/records/manifest.json")["splits"]["train"]["examples"] == 2 * 624 + 1
    )
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, env=environment, check=True)
    return {file.stem: documents.read_json(file) for file in folder.glob("*.json")}


@pytest.mark.slow
def test_synced_batch_normalization_looks_at_the_batches_of_all_devices(found):
    assert found["synced"]["losses"] == pytest.approx(found["one"]["losses"], abs=1e-4)


@pytest.mark.slow
def test_batch_normalization_of_each_replica_looks_at_its_own_part(found):
    losses = zip(found["per_replica"]["losses"], found["one"]["losses"], strict=True)
    assert max(abs(replica - one) for replica, one in losses) > 1e-3


@pytest.mark.slow
def test_the_loss_scale_of_float16_is_found_on_several_devices(found):
    assert found["float16"]["losses"] == pytest.approx(found["one"]["losses"], abs=0.1)


@pytest.mark.slow
def test_xla_changes_no_more_than_rounding(found):
    assert found["xla"]["losses"] == pytest.approx(found["one"]["losses"], abs=1e-4)
    assert found["xla"]["losses"] != found["one"]["losses"]


@pytest.mark.slow
def test_threads_are_as_many_as_was_asked_for(found):
    assert found["xla"]["threads"] == [2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["augmented on two", "augmented by XLA"])
def test_images_are_augmented_and_mixed_alike_on_several_devices_and_under_xla(way, found):
    assert found[way]["losses"] == pytest.approx(found["augmented"]["losses"], abs=1e-4)
    assert max(abs(a - b) for a, b in zip(found[way]["losses"], found["one"]["losses"], strict=True)) > 1e-2
