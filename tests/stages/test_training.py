"""What each option of training does: a few real updates on the digits."""

import contextlib
import shutil

import keras
import numpy as np
import pytest
from support import records, training
from support.training import run
from tensorflow.python.framework import config as framework

from perennial.base import documents
from perennial.base.errors import ConfigError, DataError
from perennial.data.records import manifest, pipeline
from perennial.model.evaluation import inference
from perennial.model.models import model_folder
from perennial.stages.evaluate import evaluate
from perennial.stages.export import export
from perennial.stages.validate import validate

EXAMPLES = 1294  # of the digits, to train on
WHOLE = {"train.batch_size": EXAMPLES, "train.max_steps": 1}  # one update, of all examples
QUICK = {"train.optimizer": "adam", "train.learning_rate": 0.003}
STILL = {**WHOLE, "train.learning_rate": 1e-37}  # too small to change a weight


@pytest.fixture(scope="module")
def start(digits, tmp_path_factory):
    """What a training of the digits begins with: weights, logits and labels of its split, the first step."""
    with contextlib.chdir(shutil.copytree(digits, tmp_path_factory.mktemp("start"), dirs_exist_ok=True)):
        outcome = run({**STILL, "train.weight_decay": 0.5})
        return outcome.weights, *answers(outcome, "train"), outcome.steps[0]


@pytest.fixture(scope="module")
def exact(digits, tmp_path_factory):
    """What a training of three updates gives."""
    with contextlib.chdir(shutil.copytree(digits, tmp_path_factory.mktemp("exact"), dirs_exist_ok=True)):
        return run()


def answers(outcome, split):
    """The logits of the model that was written, and the labels, of all examples of a split."""
    model, description = model_folder.load(outcome.config.paths.model)
    folder, label_map = outcome.config.paths.records, pipeline.LabelMap(outcome.config.model.labels_offset)
    batches = pipeline.batches(
        folder, manifest.load(folder), split, description.pixels,
        batch_size=100, label_map=label_map, cache_mb=0,
    )  # fmt: skip
    predictor = inference.predictor(model, description.pixels)
    logits, labels = zip(*inference.batch_logits(predictor, batches), strict=True)
    return np.concatenate(logits).astype(np.float64), np.concatenate(labels)


def cross_entropy(logits, labels, smoothing=0.0):
    """By the definition: of each example the mean of -log(p), weighted by the smoothed label."""
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    targets = np.eye(logits.shape[1])[labels] * (1 - smoothing) + smoothing / logits.shape[1]
    return -(targets * logs).sum(axis=1)


def norm(weights):
    return np.sqrt(sum((weight.astype(np.float64) ** 2).sum() for weight in weights.values()))


def difference(one, other):
    return {path: one[path] - other[path] for path in one}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "tolerance"),
    [
        ({"train.precision": "bfloat16"}, 2e-2),
        ({"train.precision": "float16", "train.loss_scale": 1024.0}, 2e-3),
    ],
)
def test_arithmetic_of_16_bits_learns_nearly_the_same(values, tolerance, here, exact):
    rough = run(values, evaluate, export)  # the export agrees with the model, or it is refused
    assert keras.config.dtype_policy().name == "float32"  # for whatever this process does next
    off = norm(difference(rough.weights, exact.weights)) / norm(exact.weights)
    assert 0 < off < tolerance


@pytest.mark.slow
def test_xla_changes_no_more_than_rounding(here, exact):
    framework.disable_op_determinism()  # the next training enables it again
    compiled = run({"train.xla": True, "train.deterministic": False})
    assert norm(difference(compiled.weights, exact.weights)) / norm(exact.weights) < 1e-5


@pytest.mark.slow
def test_the_loss_smooths_labels_and_balances_classes_over_all_examples(here, start):
    _, logits, labels, _ = start
    assert len(labels) == EXAMPLES
    outcome = run({**STILL, "train.label_smoothing": 0.2, "train.class_weights": "balanced"})
    losses = cross_entropy(logits, labels, smoothing=0.2)
    expected = np.mean([losses[labels == each].mean() for each in range(10)])  # each class counts the same
    assert outcome.steps[0]["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_weight_decay_pulls_at_kernels_and_not_at_biases(here, start):
    before, *_ = start
    free = run({"train.weight_decay": 0.0, "train.max_steps": 1}).weights
    decayed = run({"train.weight_decay": 0.5, "train.max_steps": 1}).weights
    for path, pulled in difference(free, decayed).items():
        expected = 0.1 * 0.5 * before[path] if path.endswith("kernel") else np.zeros_like(before[path])
        np.testing.assert_allclose(pulled, expected, atol=1e-7, err_msg=path)


@pytest.mark.slow
def test_without_a_weight_decay_the_architectures_own_is_taken(here):
    tutorial = {"model.name": "cifar10_tutorial", "train.max_steps": 1}
    own = run(tutorial)
    named = run({**tutorial, "train.weight_decay": 0.004})
    none = run({**tutorial, "train.weight_decay": 0.0})
    assert own.record["weights_sha256"] == named.record["weights_sha256"]
    changed = {path for path, off in difference(own.weights, none.weights).items() if off.any()}
    assert changed == {"local3/kernel", "local4/kernel"}
    assert own.steps[0]["total_loss"] > own.steps[0]["loss"] == none.steps[0]["total_loss"]
    adamw = run({**tutorial, "train.optimizer": "adamw"}).steps[0]  # has its own decay in place of the penalty
    assert adamw["total_loss"] == adamw["loss"]


def test_the_parts_of_the_loss_and_the_accuracy_of_the_batch_are_recorded(start):
    before, logits, labels, step = start
    squares = sum((values**2).sum() for path, values in before.items() if path.endswith("kernel"))
    assert step["train_accuracy"] == pytest.approx((logits.argmax(axis=1) == labels).mean())
    assert step["loss"] == pytest.approx(cross_entropy(logits, labels).mean(), rel=1e-5)
    assert {"l2_loss": pytest.approx(0.5 * squares / 2, rel=1e-5), "aux_loss": 0}.items() <= step.items()
    assert step["total_loss"] == pytest.approx(step["loss"] + step["l2_loss"])


@pytest.mark.slow
def test_gradients_are_clipped_to_the_norm(here, start):
    before, *_ = start
    after = run({"train.clip_norm": 0.25, "train.max_steps": 1, "train.precision": "float16"}).weights
    assert norm(difference(after, before)) == pytest.approx(0.1 * 0.25, rel=1e-3)


@pytest.fixture(scope="module")
def averaged(digits, tmp_path_factory):
    """A folder with a training of the head, then of all layers, with averages; and what it gives."""
    folder = shutil.copytree(digits, tmp_path_factory.mktemp("averaged"), dirs_exist_ok=True)
    values = {
        "train.averages.decay": 0.75, "train.averages.dynamic": False, "train.steps_between_evals": 2,
        "checkpoints.interval_steps": 1, "train.head.steps": 2, "train.head.learning_rate": 0.5,
        "train.max_steps": 4,
    }  # fmt: skip
    with contextlib.chdir(folder):
        return folder, run(values)


def test_the_model_and_its_scores_are_of_the_averages(averaged, start, monkeypatch):
    folder, outcome = averaged
    monkeypatch.chdir(folder)
    expected, *_ = start
    for step in (1, 2, 3, 4):
        raw = outcome.checkpoint(step)
        expected = {path: 0.75 * expected[path] + 0.25 * raw[path] for path in raw}
    for path, average in outcome.weights.items():
        np.testing.assert_allclose(average, expected[path], atol=1e-6, err_msg=path)
    logits, labels = answers(outcome, "validation")
    assert outcome.record["evaluations"][-1]["loss"] == pytest.approx(cross_entropy(logits, labels).mean())


def test_the_head_alone_is_trained_first(averaged, start, monkeypatch):
    folder, outcome = averaged
    monkeypatch.chdir(folder)
    head, before = outcome.checkpoint(2), start[0]
    assert {path for path, off in difference(head, before).items() if off.any()} == {
        "logits/kernel", "logits/bias",
    }  # fmt: skip
    assert all(off.any() for off in difference(outcome.checkpoint(4), head).values())
    assert [step["learning_rate"] for step in outcome.steps] == [0.5, 0.5, 0.1, 0.1]


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """Validated records of colour pictures, 1.8 MB in four files, dark and light; no background."""
    folder = tmp_path_factory.mktemp("noise")
    random = np.random.default_rng(0)

    def shard(count):
        return [
            records.datum(random.integers(0, 256, (100, 100, 3), np.uint8) // (2 if label == 1 else 1), label)
            for label in [1, 2] * (count // 2)
        ]

    splits = {"train": [shard(14) for _ in range(4)], "validation": [shard(10)], "test": [shard(10)]}
    records.write_folder(folder / "data" / "records", splits, ["background", "dark", "light"])
    with contextlib.chdir(folder):
        validate(training.parameters({"validate.severity.class_missing": "warn"}))
    return folder


@pytest.fixture
def there(noise, tmp_path, monkeypatch):
    """A copy of it, which the test works in."""
    monkeypatch.chdir(shutil.copytree(noise, tmp_path, dirs_exist_ok=True))


DARK_OR_LIGHT = {"model.labels_offset": 1, "preprocessing.image_size": 12, "train.batch_size": 14}


@pytest.mark.slow
def test_a_model_of_pictures_leaves_the_first_class_out(there):
    values = {**DARK_OR_LIGHT, **QUICK, "train.max_steps": 20}
    outcome = run(values, evaluate, export)
    scores = documents.read_json(outcome.config.paths.metrics)
    assert outcome.weights["conv1/kernel"].shape == (5, 5, 3, 32)
    assert outcome.weights["logits/bias"].shape == (2,)
    assert list(scores["per_class"]) == ["dark", "light"]
    assert scores["accuracy"] == 1
    assert (outcome.config.paths.export / "assets" / "labels.txt").read_text() == "0:dark\n1:light\n"


def test_a_class_with_examples_cannot_be_left_out(here):
    with pytest.raises(DataError, match=r"record \d+: label 0, expected at least 1: model.labels_offset"):
        run({"model.labels_offset": 1})


def test_some_classes_must_be_left(there):
    with pytest.raises(ConfigError, match=r"model\.labels_offset"):
        run({**DARK_OR_LIGHT, "model.labels_offset": 2})
