"""A model of start weights alone: evaluated and exported without a training step, as TF-Slim's programs did."""

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from support import original_programs, training
from support.training import Outcome, initialize_weights, parameters

from perennial.base import documents
from perennial.base.errors import ConfigError
from perennial.stages.champion import champion
from perennial.stages.evaluate import evaluate
from perennial.stages.export import export
from perennial.stages.gate import gate
from perennial.stages.train import train

CLASSES, SIDE = 3, 12
LENET = {
    "dataset.name": "image_folder", "dataset.path": "own", "dataset.digests": "record", "model.name": "lenet",
    "model.dropout": None, "preprocessing.name": "auto", "preprocessing.grayscale": True,
    "train.batch_size": 6, "train.max_steps": 0, "train.warm_start.path": "slim/model.ckpt-3",
}  # fmt: skip


def preprocessed(file: Path) -> np.ndarray:
    """The pixels of an image as lenet_preprocessing.py passes them to the network."""
    return (np.asarray(PIL.Image.open(file)).astype(np.float32)[..., None] - 128) / 128


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with validated records of small gray images, and a checkpoint of LeNet with moving averages."""
    folder, random = tmp_path_factory.mktemp("untrained"), np.random.default_rng(0)
    for split, count in {"train": 4, "val": 2, "test": 5}.items():
        for label in range(CLASSES):
            for number in range(count):
                file = folder / "own" / split / f"class {label}" / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                pixels = random.integers(0, 256, (SIDE, SIDE)) // (label + 1)
                PIL.Image.fromarray(pixels.astype(np.uint8)).save(file)
    training.prepare(folder, LENET)
    (folder / "slim").mkdir()
    images = np.stack([preprocessed(file) for file in sorted((folder / "own" / "train").rglob("*.png"))])
    original_programs.train("lenet", folder / "slim", images, CLASSES)
    return folder


@pytest.fixture(scope="module")
def plain(slim: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What the start weights give, with their averages."""
    folder = shutil.copytree(slim, tmp_path_factory.mktemp("plain"), dirs_exist_ok=True)
    with contextlib.chdir(folder):
        return trained(LENET)


def trained(values: Mapping[str, object]) -> Outcome:
    chosen = parameters(values)
    initialize_weights(chosen)
    train(chosen)
    return training.outcome(chosen)


@pytest.fixture
def run(slim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Trains in a copy of the folder with records and checkpoint; gives what it left."""
    monkeypatch.chdir(shutil.copytree(slim, tmp_path, dirs_exist_ok=True))
    return lambda **values: trained({**LENET, **values})


def test_a_checkpoint_of_slim_is_evaluated_and_exported_with_its_own_probabilities(run, forked: None) -> None:
    found = run()
    for stage in (evaluate, export, champion, gate):
        stage(found.config)
    files = sorted(Path("own/test").rglob("*.png"))
    images, prefix = np.stack([preprocessed(file) for file in files]), Path("slim/model.ckpt-3")
    averages, weights = (
        original_programs.probabilities("lenet", prefix, images, CLASSES, averages=each)
        for each in (True, False)
    )
    exported = tf.saved_model.load(str(found.config.paths.export)).signatures["classify_bytes"]
    answers = exported(image=tf.constant([file.read_bytes() for file in files]))["probabilities"].numpy()
    scored = np.load(found.config.paths.predictions)["probabilities"]
    assert np.abs(answers - averages).max() <= 1e-6
    assert np.abs(np.sort(scored, axis=0) - np.sort(averages, axis=0)).max() <= 1e-6
    assert np.abs(answers - weights).max() > 1e-3
    decision = documents.read_json(found.config.paths.decision)
    assert decision["candidate"]["accuracy"] == documents.read_json(found.config.paths.metrics)["accuracy"]


def test_a_training_without_steps_says_so_evaluates_once_and_repeats_itself(run, plain: Outcome) -> None:
    (evaluation,) = plain.record["evaluations"]
    assert (plain.record["stopped_by"], plain.record["step"], plain.record["epoch"]) == ("steps", 0, 0)
    assert (evaluation["step"], plain.record["kept"], plain.steps) == (0, 0, [])
    assert run().record == plain.record


@pytest.mark.slow
def test_a_training_without_steps_replaces_no_checkpoints(run) -> None:
    trained = run(**{"train.max_steps": 1})
    run()
    assert trained.checkpoint(1)


EVERYTHING = {
    "train.keep": "best", "train.averages.decay": 0.9, "train.head.steps": 5, "train.trainable": ["logits"],
    "train.patience": 1, "train.stop_threshold": 0.01, "train.optimizer": "adam",
    "train.schedule.name": "cosine", "train.schedule.warmup_steps": 3,
    "train.clip_norm": 1.0, "train.steps_between_evals": 7,
    "checkpoints.interval_steps": 2, "logging.histograms_every_steps": 1, "logging.images_every_steps": 1,
}  # fmt: skip


def test_options_of_the_training_change_nothing_without_steps(run, plain: Outcome) -> None:
    changed = run(**EVERYTHING)
    assert changed.record["weights_sha256"] == plain.record["weights_sha256"]
    assert changed.record["stopped_by"] == "steps"


def test_a_checkpoint_is_trained_further_as_its_program_does(run) -> None:
    files = sorted(Path("own/train").rglob("*.png"))
    images, labels = np.stack([preprocessed(file) for file in files]), np.repeat(np.arange(CLASSES), 4)
    prefix, rate = Path("slim/model.ckpt-3"), 0.001
    expected = original_programs.trained_further("lenet", prefix, images, labels, CLASSES, rate=rate)
    values = {"model.dropout": 0.0, "train.optimizer": "sgd", "train.learning_rate": rate}
    one = {"train.max_steps": 1, "train.batch_size": len(files), "train.warm_start.averages": "weights"}
    found = run(**values, **one).weights
    for path, name in {
        "conv1/kernel": "conv1/weights",
        "fc3/bias": "fc3/biases",
        "logits/kernel": "fc4/weights",
    }.items():
        np.testing.assert_allclose(found[path], expected[f"LeNet/{name}"], atol=1e-6)
    before = tf.train.load_checkpoint(str(prefix)).get_tensor("LeNet/fc4/weights")
    assert np.abs(found["logits/kernel"] - before).max() > 1e-4


def test_the_averages_of_our_own_checkpoints_are_start_weights(run) -> None:
    source = run(**{"train.max_steps": 2, "train.averages.decay": 0.5, "train.learning_rate": 0.1})
    averages = source.checkpoint(2, "averages")
    assert averages.keys() == source.checkpoint(2).keys()
    started = run(**{"train.warm_start.path": str(source.folder)})
    np.testing.assert_array_equal(started.weights["fc3/kernel"], averages["fc3/kernel"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train.warm_start.path": None}, "max_steps must be above 0 for train.warm_start.path null, got 0"),
        ({"train.warm_start.exclude": ["logits"]}, "train.max_steps is 0, but logits would stay random"),
        ({"preprocessing.image_size": 28}, "fc3/kernel .576, 1024. for .3136, 1024.; train.max_steps 0 needs"),
        ({"model.name": "cifarnet"}, "has none of this model's weights; it has the layers LeNet"),
    ],
    ids=["no start weights", "random head", "another size", "another network"],
)
def test_a_model_that_would_be_random_is_refused(run, values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(**values)
    with contextlib.suppress(FileNotFoundError):
        assert not list(Path("models").iterdir())
