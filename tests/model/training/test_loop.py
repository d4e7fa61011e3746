"""How a training goes, ends and goes on: real ones, of a few updates on the digits."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from support import training
from support.training import ROOT, run

from perennial.base import documents
from perennial.base.errors import ConfigError, Interrupted, PerennialError
from perennial.base.processes import process
from perennial.model.evaluation import scoring
from perennial.model.training import checkpoints, losses, triggers
from perennial.model.training.checkpoints import Checkpoints
from perennial.model.training.train_step import Averages, Trainer
from perennial.model.training.training_history import History
from perennial.stages.evaluate import evaluate

EXPLODING = {
    "train.schedule.name": "piecewise",
    "train.schedule.boundaries": [5],
    "train.schedule.values": [1e38],
    "train.max_steps": 9,
}
# Much that has a state: slots of the optimizer, slow weights, averages, the best weights; and distortions.
RICH = {
    "model.dropout": None, "train.optimizer": "adam", "train.learning_rate": 0.002, "train.max_steps": 6,
    "train.steps_between_evals": 2, "train.keep": "best", "train.averages.decay": 0.9,
    "train.augmentation.erasing": 0.5, "checkpoints.interval_steps": 3,
}  # fmt: skip


def evaluations(outcome, name):
    return [each[name] for each in outcome.record["evaluations"]]


def outputs(folder):
    """What a finished training leaves, but for logs."""
    made = [
        *(folder / ".work" / "train").glob("*/steps.csv"),
        *sorted((folder / "metrics").rglob("*.*")),
        *sorted((folder / "models").rglob("*.*")),
    ]
    return {file.name: file.read_bytes() for file in made}


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_the_best_weights_become_the_model_where_they_are_kept(here):
    outcome = run(
        {
            "train.keep": "best",
            "train.stop_metric": "loss",
            "train.schedule.name": "piecewise",
            "train.schedule.boundaries": [4],
            "train.schedule.values": [100.0],  # what was learnt is lost again
            "train.steps_between_evals": 2,
            "train.max_steps": 8,
            "checkpoints.interval_steps": 2,
        },
        evaluate,
    )
    measured = dict(zip(evaluations(outcome, "step"), evaluations(outcome, "loss"), strict=True))
    best = min(measured, key=measured.get)
    assert outcome.record["kept"] == best < 8
    assert all(
        np.array_equal(weight, outcome.weights[path]) for path, weight in outcome.checkpoint(best).items()
    )
    assert documents.read_json(outcome.config.paths.metrics)["model"] == outcome.record["weights_sha256"]


class TestWhatIsNoNumber:
    @pytest.mark.slow
    def test_ends_the_process_with_step_tensor_and_last_good_checkpoint(self, here):
        before = run().record
        model = contents(here / "models")
        training.parameters({**EXPLODING, "checkpoints.interval_steps": 2})
        done = subprocess.run(
            [sys.executable, "-m", "perennial", "train"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stderr.splitlines()[-1]
        assert done.returncode == 1
        assert re.match(
            r"perennial train: the (logits are|gradient of \w+/kernel is) NaN or infinite at step 7", said
        )
        assert "no model was written, the checkpoint of step 6, the last good one, was kept" in said
        assert "Traceback" not in done.stderr
        assert documents.read_json(here / "metrics" / "training.json") == before
        assert contents(here / "models") == model
        assert documents.read_json(here / ".work" / "failure.json")["code"] == 1
        for path in (here / ".work" / "train").glob("*/step-*"):
            assert all(np.isfinite(value).all() for value in checkpoints.read(path).values.values())

    def test_never_passes_the_stop_rule(self, here):
        # The argmax of NaN is class 0, one example in ten.
        last = {
            "train.learning_rate": 2.0,
            "train.schedule.boundaries": [2],
            "train.schedule.values": [3e38],  # the product is infinite as float32
            "train.max_steps": 3,
        }
        with pytest.raises(PerennialError, match=r"logits on validation .* at step 3; no model was written"):
            run({**EXPLODING, **last, "train.stop_threshold": 0.01})
        assert not list(here.glob("models/*"))
        assert not list(here.glob(".work/train/*/step-*"))

    @pytest.mark.slow
    def test_is_named_where_it_begins(self, here):
        with pytest.raises(
            PerennialError, match=r"the loss is NaN or infinite at step 1.*no checkpoint was kept"
        ):
            run({"train.class_weights": [3e38] * 10})

    @pytest.mark.parametrize("precision", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
    def test_is_found_in_gradients(self, here, monkeypatch, precision):
        cross_entropy = losses.cross_entropy

        def without_gradient(logits, labels, **options):
            nothing = tf.sqrt(0 * tf.reduce_sum(tf.cast(logits, tf.float32)))  # its slope is infinite
            return cross_entropy(logits, labels, **options) + nothing

        monkeypatch.setattr(losses, "cross_entropy", without_gradient)
        with pytest.raises(PerennialError, match="the gradient of conv1/kernel is NaN or infinite") as caught:
            run({"train.precision": precision, "train.max_steps": 30})
        # At the scale of 2 ** 15 that it begins with, float16 passes over what may have been too large.
        assert (" at step 1 " in str(caught.value)) == (precision == "float32")

    def test_weights_that_no_gradient_reaches_are_named(self, here, monkeypatch):
        cross_entropy = losses.cross_entropy
        monkeypatch.setattr(
            losses, "cross_entropy", lambda x, *y, **z: cross_entropy(tf.stop_gradient(x), *y, **z)
        )
        with pytest.raises(ConfigError, match=r"no gradient reaches conv1/kernel, conv1/bias, .* and 5 more;"):
            run()


@pytest.mark.slow
def test_updates_that_overflow_are_passed_over_until_the_scale_fits(here):
    outcome = run(
        {
            "train.precision": "float16", "train.class_weights": [1000.0] * 10, "train.learning_rate": 1e-4,
            "train.max_steps": 10, "checkpoints.interval_steps": 1,
        }
    )  # fmt: skip
    scales = [outcome.checkpoint(step, "optimizers")["loss_scale/dynamic_scale"] for step in range(1, 11)]
    first, last = outcome.checkpoint(1), outcome.checkpoint(10)
    assert scales[0] == 2**14
    assert scales[-1] == scales[-2] < 2**14
    assert all((first[path] != last[path]).any() for path in first)


MOMENTS = {  # a function, which of its calls meets the signal, and the step that is saved then
    "compiling": ((Trainer, "_gradients", 1), 0),
    "writing down the first update": ((History, "add_steps", 1), 1),
    "an evaluation": ((scoring, "_within_top", 2), 2),
    "putting weights back": ((Averages, "_assign", 2), 2),
    "writing down an evaluation": ((History, "add_evaluation", 2), 4),
    "deciding for the last time": ((triggers, "stopped_by", 3), 6),
    "waiting for the last save": ((Checkpoints, "wait", 4), 6),
}
QUICK = ("writing down the first update",)


@pytest.fixture(scope="module")
def unbroken(digits, tmp_path_factory):
    """A folder in which a training has ended that nothing interrupted."""
    folder = tmp_path_factory.mktemp("unbroken")
    shutil.copytree(digits, folder, dirs_exist_ok=True)
    with contextlib.chdir(folder):
        run(RICH)
    return folder


def test_the_curves_are_those_of_the_record(unbroken, monkeypatch):
    monkeypatch.chdir(unbroken)
    outcome = training.outcome(training.parameters(RICH))
    curves = outcome.config.paths.curves
    assert training.table(curves / "validation.csv") == outcome.record["evaluations"]
    assert training.table(curves / "training.csv") == outcome.steps
    assert [step["step"] for step in outcome.steps] == [1, 2, 3, 4, 5, 6]


@pytest.fixture
def signals(monkeypatch):
    """Lets a signal end the test's training as it ends a stage; gives a function that forgets it."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def forget():
        monkeypatch.setattr(process, "_received", [])
        for number, handler in handlers.items():
            signal.signal(number, handler)

    forget()
    yield forget
    forget()


def signal_at(patch, owner, name, call):
    """Sends SIGTERM to this process when a function is called for that time."""
    function, calls = getattr(owner, name), []

    def called(*args, **options):
        calls.append(name)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*args, **options)

    patch.setattr(owner, name, called)


@pytest.mark.parametrize(
    "moment", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MOMENTS]
)
def test_a_training_that_a_signal_ends_goes_on_to_the_very_same_end(moment, here, unbroken, signals):
    call, saved = MOMENTS[moment]
    with pytest.MonkeyPatch.context() as patch:
        signal_at(patch, *call)
        ended = f"SIGTERM ended the training; saved at step {saved};"
        with pytest.raises(Interrupted, match=ended), process.interruptible():
            run(RICH)
    signals()
    run(RICH)
    assert outputs(here) == outputs(unbroken)


def test_a_finished_training_writes_its_outputs_again(here, unbroken, caplog):
    shutil.copytree(unbroken, here, dirs_exist_ok=True)
    shutil.rmtree(here / "models")
    shutil.rmtree(here / "metrics")
    with caplog.at_level("INFO"):
        run(RICH)
    assert "resumed from step 6, where it had finished" in caplog.text
    assert outputs(here) == outputs(unbroken)


def interrupted(signals, values):
    """The checkpoints of a training that a signal ended after two updates."""
    with pytest.MonkeyPatch.context() as patch:
        signal_at(patch, History, "add_steps", 2)
        with pytest.raises(Interrupted, match="saved at step 2"), process.interruptible():
            run(values)
    signals()


@pytest.mark.slow
def test_rows_that_a_power_cut_took_are_no_obstacle(here, signals):
    interrupted(signals, {"train.max_steps": 5})
    (steps,) = (here / ".work" / "train").glob("*/steps.csv")
    steps.write_bytes(steps.read_bytes().splitlines(keepends=True)[0])
    outcome = run({"train.max_steps": 5})
    assert [step["step"] for step in outcome.steps] == [3, 4, 5]
    assert training.table(outcome.config.paths.curves / "training.csv") == outcome.steps


def test_a_training_of_another_kind_starts_from_zero_and_keeps_the_old_checkpoints(here, unbroken, caplog):
    shutil.copytree(unbroken, here, dirs_exist_ok=True)
    training.rewind(3)
    (folder,) = (here / ".work" / "train").iterdir()
    left = contents(here / ".work" / "train")
    with caplog.at_level("INFO"):
        other = run({**RICH, "train.seed": 1, "train.max_steps": 2})
    assert "resumed" not in caplog.text
    (why,) = (line for line in caplog.messages if "fingerprint" in line)
    assert "train.max_steps (6, now 2)" in why
    assert "train.seed (0, now 1)" in why
    assert str(folder.relative_to(here)) in why
    assert [step["step"] for step in other.steps] == [1, 2]
    now = contents(here / ".work" / "train")
    assert {name: now.get(name) for name in left} == left
