"""Updates of the weights against TensorFlow 1 and Keras."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import Load
from numpy.typing import NDArray
from support import forks

import perennial
from perennial.base import choices
from perennial.base.config.training import ScheduleConfig, TrainConfig
from perennial.base.errors import ConfigError
from perennial.base.project import own_components
from perennial.model.training import optimizers, schedules

Array = NDArray[np.float64]
RATE = 0.1
WEIGHTS = np.array([0.5, -0.3, 0.2, 0.9, -0.7])
GRADIENTS = np.array([[1.0, -2.0, 0.3, 0.05, 0.0], [0.5, 1.5, -0.1, 0.05, 0.2], [-1.0, 0.4, 0.2, 0.05, -3.0]])


# What TensorFlow 1 does not have, as Keras has it. The epsilon is large enough to show where it stands.
ADAM = {"beta_1": 0.9, "beta_2": 0.5, "epsilon": 0.02}
CASES: dict[str, tuple[type, dict[str, Any]]] = {
    "adam": (keras.optimizers.Adam, {**ADAM, "amsgrad": True}),
    "adamw": (keras.optimizers.AdamW, {**ADAM, "amsgrad": False, "weight_decay": 0.3}),
}


def test_every_optimizer_that_can_be_chosen_is_compared_with_an_original() -> None:
    names = get_args(choices.Optimizer)
    assert tuple(optimizers.OPTIMIZERS) == names
    assert {name.partition(",")[0] for name in (*ORIGINALS, *CASES)} == set(names)


def apply(
    optimizer: keras.optimizers.Optimizer,
    weight: keras.Variable,
    clip_norm: float | None = None,
    gradients: Array = GRADIENTS,
) -> Iterator[Array]:
    """The weights after each of the gradients."""
    optimizer.build([weight])
    update = tf.function(
        lambda gradient: optimizers.apply(
            optimizer, [optimizer.scale_loss(gradient)], [weight], clip_norm=clip_norm
        ),
        autograph=False,
    )
    for gradient in gradients:
        update(tf.constant(gradient, tf.float32))
        yield weight.numpy()


@pytest.mark.parametrize("name", CASES)
def test_updates_that_tensorflow_1_does_not_have_are_those_of_keras(name: str, load: Load) -> None:
    original, options = CASES[name]
    config = load(**{"train.optimizer": name, "train.optimizer_options": options}).train
    expected, found = (
        list(apply(optimizer, keras.Variable(WEIGHTS, dtype="float32")))
        for optimizer in (original(RATE, **options), optimizers.build(config, RATE))
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-7)


@pytest.mark.fast_rows("128.0-float16-0.5", "dynamic-float32-0.5", "dynamic-float16-1000.0")
@pytest.mark.parametrize("clip_norm", [0.5, 1000.0])
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("loss_scale", [128.0, "dynamic"])
def test_all_gradients_together_are_clipped_whatever_the_loss_scale(
    precision: str, loss_scale: float | str, clip_norm: float, load: Load
) -> None:
    values = {"optimizer": "sgd", "precision": precision, "loss_scale": loss_scale}
    config = load(**{f"train.{key}": value for key, value in values.items()}).train
    *_, found = apply(optimizers.build(config, RATE), keras.Variable(WEIGHTS, dtype="float32"), clip_norm)
    norms = np.linalg.norm(GRADIENTS, axis=1, keepdims=True)
    expected = WEIGHTS - RATE * (GRADIENTS * np.minimum(1, clip_norm / norms)).sum(axis=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-7)


@pytest.mark.fast_rows("adamw", "momentum")
@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_a_factor_of_the_rate_gives_what_an_optimizer_of_that_rate_gives(name: str, load: Load) -> None:
    config, factors = load(**{"train.optimizer": name}).train, [1.0, 0.1, 0.75]
    weights = [keras.Variable(WEIGHTS, dtype="float32") for _ in factors]
    optimizer = optimizers.build(config, RATE, factors)
    optimizer.build(weights)
    for gradient in GRADIENTS:
        optimizers.apply(optimizer, [tf.constant(gradient, tf.float32)] * 3, weights, clip_norm=None)
    for factor, found in zip(factors, weights, strict=True):
        weight = keras.Variable(WEIGHTS, dtype="float32")
        *_, expected = apply(optimizers.build(config, RATE * factor), weight)
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-7)


def test_rates_fall_from_the_head_to_the_input_in_twelve_groups_or_as_patterns_say(load: Load) -> None:
    layers = [keras.layers.Dense(2, name=f"block{number}") for number in range(1, 25)]
    model = keras.Sequential([keras.Input((2,)), *layers, keras.layers.Dense(3, name="logits")])
    assert optimizers.rate_factors(load().train, model, ["logits"]) == []
    chosen = load(**{"train.layer_decay": 0.5, "train.rates": {"block2?": 10.0, "*/bias": 3.0}}).train
    factors = optimizers.rate_factors(chosen, model, ["logits"])
    paths = [weight.path for weight in model.trainable_variables]
    found = {path: factor for path, factor in zip(paths, factors, strict=True) if "/kernel" in path}
    of_blocks = [0.5 ** (12 - number // 2) * (10.0 if number >= 19 else 1.0) for number in range(24)]
    assert list(found.values()) == [*of_blocks, 1.0]
    assert [factors[1], factors[-1]] == [3.0 * 0.5**12, 3.0]
    with pytest.raises(perennial.ConfigError, match=r"train\.rates: no layer .* is named conv\*"):
        optimizers.rate_factors(load(**{"train.rates": {"conv*": 0.1}}).train, model, ["logits"])


ONE = tf.compat.v1.train
# TensorFlow 1's optimizers as TF-Slim calls them, the options that make ours equal, and how far the weights may
# be from theirs.
ORIGINALS: dict[str, tuple[Callable[[tf.Tensor], Any], dict[str, Any], float]] = {
    "adadelta": (lambda rate: ONE.AdadeltaOptimizer(rate, rho=0.95, epsilon=1.0), {"epsilon": 1.0}, 1e-5),
    "adagrad": (lambda rate: ONE.AdagradOptimizer(rate, initial_accumulator_value=0.1), {}, 1e-5),
    "adam": (lambda rate: ONE.AdamOptimizer(rate, epsilon=1.0), {"epsilon": 1.0}, 1e-5),
    "ftrl": (lambda rate: ONE.FtrlOptimizer(rate, initial_accumulator_value=0.1), {}, 1e-4),
    "momentum": (lambda rate: ONE.MomentumOptimizer(rate, 0.9), {}, 1e-5),
    "momentum, nesterov": (
        lambda rate: ONE.MomentumOptimizer(rate, 0.9, use_nesterov=True), {"nesterov": True}, 1e-5,
    ),
    "rmsprop": (lambda rate: ONE.RMSPropOptimizer(rate, 0.9, 0.9, 1.0), {}, 1e-5),
    "rmsprop, small epsilon": (
        lambda rate: ONE.RMSPropOptimizer(rate, 0.9, 0.9, 1e-3), {"epsilon": 1e-3}, 1e-5,
    ),
    "rmsprop, centered": (
        lambda rate: ONE.RMSPropOptimizer(rate, 0.9, 0.9, 1.0, centered=True), {"centered": True}, 1e-5,
    ),
    "sgd": (ONE.GradientDescentOptimizer, {}, 1e-5),
}  # fmt: skip
MANY = np.random.default_rng(3).normal(size=(40, 5)).astype(np.float32)  # gradients
DECAY = {"learning_rate": RATE, "schedule.name": "exponential", "schedule.decay_steps": 10}


def with_tensorflow_1(optimizer: Callable[[tf.Tensor], Any]) -> Array:
    """The weights after each of MANY gradients, while the rate falls as DECAY says."""
    found = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = ONE.get_or_create_global_step()
        rate = ONE.exponential_decay(RATE, step, 10, 0.5, staircase=True)
        weight = tf.compat.v1.get_variable("weight", initializer=WEIGHTS.astype(np.float32), use_resource=True)
        gradient = tf.compat.v1.placeholder(tf.float32, [5])
        applied = optimizer(rate).apply_gradients([(gradient, weight)], global_step=step)
        session.run(tf.compat.v1.global_variables_initializer())
        for each in MANY:
            session.run(applied, {gradient: each})
            found.append(session.run(weight))
    return np.array(found)


def with_ours(name: str, options: Mapping[str, object], load: Load) -> Array:
    """The same with our optimizer."""
    values = {"optimizer": name, "optimizer_options": dict(options), **DECAY, "schedule.decay_factor": 0.5}
    config = load(**{f"train.{key}": value for key, value in values.items()}).train
    optimizer = optimizers.build(config, schedules.build(config, examples=1, batch_size=1, steps=40))
    return np.array(list(apply(optimizer, keras.Variable(WEIGHTS, dtype="float32"), gradients=MANY)))


def relative_difference(found: Array, expected: Array) -> float:
    """The largest one of the way from the first weights."""
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected - WEIGHTS)))


@pytest.mark.fast_rows("adam", "ftrl", "momentum, nesterov", "rmsprop, centered")
@pytest.mark.parametrize("case", ORIGINALS)
def test_updates_are_those_of_tensorflow_1_while_the_rate_falls(case, load, record_property) -> None:
    original, options, tolerance = ORIGINALS[case]
    difference = relative_difference(
        with_ours(case.partition(",")[0], options, load), with_tensorflow_1(original)
    )
    record_property("difference", difference)
    assert difference < tolerance


@pytest.mark.fast_rows("momentum-options0", "rmsprop-options2")
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("momentum", {"accumulate": "steps"}),
        ("momentum, nesterov", {"nesterov": True, "accumulate": "steps"}),
        ("rmsprop", {"initial_accumulator_value": 0.0}),
        ("rmsprop, small epsilon", {"epsilon": 1e-3, "initial_accumulator_value": 0.0}),
    ],
)
def test_the_formulas_of_keras_differ_from_tensorflow_1(case, options, load, record_property) -> None:
    original, _, _ = ORIGINALS[case]
    difference = relative_difference(
        with_ours(case.partition(",")[0], options, load), with_tensorflow_1(original)
    )
    record_property("difference", difference)
    assert difference > 0.05


TWO_REPLICAS = """
import json, pathlib, sys
import keras, numpy as np, tensorflow as tf
from perennial.base import config
from perennial.model.training import optimizers, schedules

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
train = config.load(pathlib.Path(sys.argv[1])).train

def after_two_updates(clip_norm=None, overflow=(), **changes):
    with strategy.scope():
        weight = keras.Variable([0.0, 0.0])
        optimizer = optimizers.build(train.model_copy(update={"optimizer": "sgd", **changes}), 1.0)
        optimizer.build([weight])

    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        gradient = optimizer.scale_loss(tf.where(replica == 0, [3.0, 0.0], [0.0, 4.0]))
        if overflow:
            gradient = tf.where(tf.equal(replica, overflow[0]), np.inf, gradient)
        optimizers.apply(optimizer, [gradient], [weight], clip_norm=clip_norm)

    update = tf.function(lambda: strategy.run(step), autograph=False)
    update(), update()
    copies = [copy.numpy().tolist() for copy in strategy.experimental_local_results(weight.value)]
    scale, updates = float(optimizer.scale_loss(1.0)), int(optimizer.iterations.numpy())
    return {"copies": copies, "scale": scale, "updates": updates}

float16 = {"precision": "float16", "loss_scale": "dynamic"}
print(json.dumps(after_two_updates(**eval(sys.argv[2]))))
"""


CLIPPED, OVERFLOW = [-1.2, -1.6], [0, 0]


@pytest.mark.fast_rows("scaled and clipped", "overflow in the second")
@pytest.mark.parametrize(
    ("options", "weights", "scale", "updates"),
    [
        pytest.param("{}", [-6, -8], 1, 2, id="plain"),
        # The sum [3, 4] is clipped; its clipped parts would be [1, 1].
        pytest.param("{'clip_norm': 1.0}", CLIPPED, 1, 2, id="clipped"),
        pytest.param("float16", [-6, -8], 2**15, 2, id="scaled"),
        pytest.param("{'clip_norm': 1.0, **float16}", CLIPPED, 2**15, 2, id="scaled and clipped"),
        pytest.param(
            "{'clip_norm': 1.0, 'overflow': [0], **float16}", OVERFLOW, 2**13, 0, id="overflow in the first"
        ),
        pytest.param(
            "{'clip_norm': 1.0, 'overflow': [1], **float16}", OVERFLOW, 2**13, 0, id="overflow in the second"
        ),
    ],
)
def test_replicas_apply_one_sum_of_their_gradients(options, weights, scale, updates) -> None:
    """In another process: the CPU cannot be split once TensorFlow has used it."""
    source = Path(perennial.__file__).parents[1]
    done = subprocess.run(
        [forks.with_tensorflow(), "-m", "-c", TWO_REPLICAS, source.parent / "params.yaml", options],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert {"scale": scale, "updates": updates}.items() <= found.items()
    np.testing.assert_allclose(found["copies"], [weights, weights], rtol=1e-6)


@pytest.mark.parametrize("schedule", ["fixed", "cosine"])
def test_an_own_optimizer_must_use_the_rate_that_it_is_given(monkeypatch, schedule: str) -> None:
    config = TrainConfig(optimizer="components.own:nadam", schedule=ScheduleConfig(name=schedule))
    rate = schedules.build(config, examples=9, batch_size=3, steps=9)
    monkeypatch.setattr(own_components, "load", lambda *_: keras.optimizers.Nadam)
    optimizers.build(config, rate)
    monkeypatch.setattr(own_components, "load", lambda *_: lambda _: keras.optimizers.Nadam(0.3))
    with pytest.raises(ConfigError, match=r"own\.py has another learning rate than the one of params\.yaml"):
        optimizers.build(config, rate)
