"""Code that shares nothing with the project finds the scores that `evaluate` found, of an export."""

import contextlib
import csv
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, top_k_accuracy_score
from support import scoring
from support.parameters import change_params

from perennial.base import config, documents
from perennial.base.config import Config
from perennial.model.evaluation import predictions
from perennial.model.export import saved_model
from perennial.model.models import model_folder
from perennial.stages.evaluate import evaluate

ROOT = Path(__file__).parents[3]
MODELS = {"mnist_cnn": scoring.GREY, "cifar10_tutorial": scoring.CROPPED}
Found = tuple[Path, Config, dict[str, Any]]
KEYS = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
}


def scores(folder: Path, split: str) -> dict[str, object]:
    """What an export says of a split of records, by code that shares nothing with ours."""
    classify = tf.saved_model.load(str(folder / "models" / "export")).signatures["classify_bytes"]
    shards = sorted(str(file) for file in (folder / "data" / "records").glob(f"*_{split}_*.tfrecord"))
    labels, predicted, probabilities = [], [], []
    for records in tf.data.TFRecordDataset(shards).batch(100):
        features = tf.io.parse_example(records, KEYS)
        answers = classify(image=features["image/encoded"])
        labels.append(features["image/class/label"].numpy())
        predicted.append(answers["classes"].numpy())
        probabilities.append(answers["probabilities"].numpy())
    actual, said, p = map(np.concatenate, (labels, predicted, probabilities))
    classes = range(p.shape[1])
    exact = p.astype(np.float64)
    return {
        "examples": len(actual),
        "accuracy": accuracy_score(actual, said),
        "top_5": top_k_accuracy_score(actual, p, k=5, labels=classes),
        "loss": log_loss(actual, exact / exact.sum(axis=1, keepdims=True), labels=classes),
        "confusion": confusion_matrix(actual, said, labels=classes).tolist(),
    }


@pytest.fixture(scope="module", params=["mnist_cnn", pytest.param("cifar10_tutorial", marks=pytest.mark.slow)])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """A folder in which a model was evaluated, its parameters, and what the program says."""
    folder = tmp_path_factory.mktemp(request.param)
    chosen = prepared(folder, request.param)
    return folder, chosen, scores(folder, "test")


def prepared(folder: Path, name: str) -> Config:
    world = scoring.world(103, name, MODELS[name])
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(folder / "params.yaml", {"evaluate.batch_size": 50})
    with contextlib.chdir(folder):
        chosen = config.load(Path("params.yaml"))
        scoring.write_records(chosen.paths.records, world, {"test": 103})
        model_folder.save(chosen.paths.model, world.model, world.description)
        evaluate(chosen)
        chosen.paths.export.mkdir()
        saved_model.save(chosen.paths.export, world.model, world.description, ())
    return chosen


def test_it_finds_the_same_scores(found: Found) -> None:
    folder, chosen, program = found
    metrics = documents.read_json(folder / chosen.paths.metrics)
    assert program["examples"] == metrics["examples"] == 103
    assert program["accuracy"] == pytest.approx(metrics["accuracy"], abs=1e-12)
    assert program["top_5"] == pytest.approx(metrics["recall_at_5"], abs=1e-12)
    assert program["loss"] == pytest.approx(metrics["loss"], abs=1e-5)


def test_it_finds_the_same_confusion_matrix(found: Found) -> None:
    folder, chosen, program = found
    with (folder / chosen.paths.confusion).open() as lines:
        pairs = Counter((row["actual"], row["predicted"]) for row in csv.DictReader(lines))
    counts = [[pairs[actual, predicted] for predicted in scoring.CLASSES] for actual in scoring.CLASSES]
    assert counts == program["confusion"]
    given = predictions.read(folder / chosen.paths.predictions)
    assert np.diag(program["confusion"]).sum() == (given.probabilities.argmax(axis=1) == given.labels).sum()
