"""What frozen layers give is computed once, and changes nothing else."""

import contextlib
import dataclasses
import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers
from support.training import rewind, run

from perennial.data.preprocessing import ImageSpec
from perennial.model.models import MODELS
from perennial.model.models.layers import Dropout, Mirrored, MirroredMean, chained
from perennial.model.training import frozen_features, warm_start


def pixels(preprocessing: str = "rescale") -> ImageSpec:
    return ImageSpec(
        preprocessing=preprocessing, height=8, width=8, channels=1, image_size=None, grayscale=False, fast=True
    )


def plain() -> list[keras.Layer]:
    """Layers of a network with much before its head."""
    return [
        layers.Conv2D(4, 3, name="conv"), layers.BatchNormalization(name="norm"),
        layers.Flatten(name="flatten"), layers.Dense(16, activation="relu", name="dense"),
        Dropout(0.5, name="dropout"), layers.Dense(10, name="logits"),
    ]  # fmt: skip


def model(made=plain, *trainable: str) -> keras.Model:
    built = chained(lambda *_: made())((8, 8, 1), 10, SimpleNamespace(name="small"))
    warm_start.set_trainable(built, trainable)
    return built


def chosen(built: keras.Model, spec: ImageSpec | None = None, **values: int):
    given = {"augmented": False, "examples": 1000, "memory_mb": 1, "workers": 1, **values}
    return frozen_features.choose(built, spec or pixels(), **given)


@pytest.mark.parametrize(
    ("made", "trainable", "width"),
    [
        (plain, ["logits"], (16,)),  # before its dropout
        (plain, ["dense", "logits"], (144,)),
        (plain, ["norm", "logits"], None),  # most weights come after it
        (plain, [], None),
        (lambda: [Dropout(0.5, name="early"), *plain()], ["logits"], None),
        (lambda: [layers.GaussianNoise(0.1, name="noise"), *plain()], ["logits"], None),
        (lambda: [Dropout(0.0, name="early"), *plain()], ["logits"], (16,)),
    ],
)
def test_a_network_is_cut_before_the_first_layer_that_varies(made, trainable, width):
    found = chosen(model(made, *trainable), memory_mb=10)
    assert (found and [tuple(tensor.shape[1:]) for tensor in found._cut]) == (width and [width])


def branched(*trainable: str) -> keras.Model:
    image = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, name="conv")(image)
    side = layers.Dense(3, name="side")(layers.Flatten(name="early")(x))
    logits = layers.Dense(3, name="logits")(layers.GlobalAveragePooling2D(name="late")(x))
    built = keras.Model(image, {"logits": logits, "aux_logits": side})
    warm_start.set_trainable(built, trainable)
    return built


def test_a_branch_that_is_frozen_as_a_whole_stays_with_the_others():
    assert chosen(branched("logits")) is None


def test_a_network_with_branches_is_cut_in_several_places():
    built = branched("logits", "side")
    found = chosen(built)
    assert {tuple(tensor.shape[1:]) for tensor in found._cut} == {(144,), (4,)}
    images = np.random.default_rng(0).random((5, 8, 8, 1), np.float32)
    frozen = keras.Model(built.input, found._cut)
    expected, got = built(images), found.rest(frozen(images))
    assert all((expected[name] == got[name]).numpy().all() for name in expected)


@pytest.mark.parametrize(
    ("spec", "values", "why"),
    [
        (pixels("standard"), {}, "preprocessing standard distorts images differently in each epoch"),
        (pixels(), {"workers": 2}, "several workers train"),
        (pixels(), {"examples": 20_000}, "these would take 1 MB, more than train.memory_mb 1"),
    ],
)
def test_the_log_says_why_whole_steps_are_made(spec, values, why, caplog):
    caplog.set_level("INFO")
    assert chosen(model(plain, "logits"), spec, **values) is None
    assert why in caplog.text


def test_a_network_that_mirrors_makes_whole_steps(caplog):
    caplog.set_level("INFO")
    layers_ = [Mirrored(name="mirrored"), *plain()[:3], MirroredMean(name="mean"), *plain()[3:]]
    assert chosen(model(lambda: layers_, "logits")) is None
    assert "mirror images, but not in training" in caplog.text


def test_nothing_is_said_where_nothing_is_frozen(caplog):
    caplog.set_level("INFO")
    assert chosen(model()) is None
    assert not caplog.text


def test_features_come_in_order_also_where_the_weights_are_too_large_for_constants(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (13, 8, 8, 1), np.uint8)
    batches = [(images[start : start + 2], np.arange(13)[start : start + 2]) for start in range(0, 13, 2)]
    built, found = model(plain, "logits"), []
    for limit in (frozen_features.FOLDED_MB, 0):
        monkeypatch.setattr(frozen_features, "FOLDED_MB", limit)
        features, labels = zip(*chosen(built)._computed(batches), strict=True)
        assert np.concatenate(labels).tolist() == list(range(13))
        found.append(np.concatenate([feature for (feature,) in features]))
    assert len(np.unique(found[0], axis=0)) == 13
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


# The head alone, then the layer before it too: each phase keeps other features.
VALUES = {
    "model.dropout": 0.5,
    "train.head.steps": 5,
    "train.trainable": ["dense", "logits"],
    "train.max_steps": 8,
    "train.steps_between_evals": 2,
    "train.batch_size": 500,  # the last batch of an epoch is short
    "train.optimizer": "adam",
    "train.keep": "best",
    "train.averages.decay": 0.9,
    "train.weight_decay": 0.001,
    "checkpoints.interval_steps": 3,
}


@pytest.fixture(scope="module")
def features(digits, tmp_path_factory):
    """A training of that network, which stays under the name of another one, and where it worked."""
    folder = tmp_path_factory.mktemp("features")
    shutil.copytree(digits, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        network = chained(lambda *_: plain())
        patch.setitem(MODELS, "mnist_cnn", dataclasses.replace(MODELS["mnist_cnn"], network=network))
        yield run(VALUES), folder


def numbers(outcome) -> list[float]:
    """All that was measured of steps and evaluations."""
    return [value for row in (*outcome.steps, *outcome.record["evaluations"]) for value in row.values()]


def test_features_change_nothing(features, here, monkeypatch):
    made, _ = features
    monkeypatch.setattr(frozen_features, "choose", lambda *_, **__: None)
    whole = run(VALUES)
    assert numbers(made) == pytest.approx(numbers(whole), rel=1e-4, abs=1e-6)
    for path, weights in whole.weights.items():
        np.testing.assert_allclose(made.weights[path], weights, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 5])  # 5: the end of the first phase
def test_a_training_resumes_with_equal_features(features, tmp_path, monkeypatch, caplog, step):
    made, folder = features
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO")
    rewind(step)
    again = run(VALUES)
    assert f"resumed from step {step}" in caplog.text
    assert [caplog.text.count(f"features of {count} images") for count in ("1,294", "144")] == (
        [1, 1] if step == 5 else [2, 2]
    )
    assert numbers(again) == numbers(made)
    assert all((again.weights[path] == weights).all() for path, weights in made.weights.items())
