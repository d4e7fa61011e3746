"""Models that average over mirror images, with a temperature or thresholds: against NumPy, in every format."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from model.export.test_export_formats import IMAGES, converted
from model.export.test_several_labels import several
from numpy.typing import NDArray
from scipy.special import expit, softmax
from support import scoring
from support.scoring import World

from perennial.base import config
from perennial.base.errors import ConfigError
from perennial.base.params import options
from perennial.model.evaluation import confidence, inference, split
from perennial.model.export import features, parity, saved_model
from perennial.model.export.export_formats import FORMATS
from perennial.model.inference.classifier import Classifier
from perennial.model.models.model_folder import Confidence

EXAMPLES, TEMPERATURE = len(IMAGES), 2.0
Floats = NDArray[np.float32]


class Mirrored(NamedTuple):
    """A model that averages over mirror images, its export, and what it has to say."""

    world: World
    folder: Path
    logits: Floats
    probabilities: Floats


def mean_logits(world: World) -> Floats:
    """The logits of images and of their mirror images, averaged by NumPy."""
    ready = world.description.pixels.evaluation(world.images).numpy()
    plain, turned = (world.model(each, training=False).numpy() for each in (ready, ready[:, :, ::-1]))
    assert np.abs(plain - turned).max() > 0.1
    return (plain + turned) / 2


@pytest.fixture(scope="module", params=["multiclass", "multilabel"])
def mirrored(request, tmp_path_factory) -> Mirrored:
    """With a temperature, or with several labels and their thresholds."""
    by_label = request.param == "multilabel"
    world = several(EXAMPLES)[0] if by_label else scoring.world(EXAMPLES)
    fitted = world.description.confidence if by_label else Confidence(temperature=TEMPERATURE)
    changes = {"mirror": True, "confidence": fitted}
    world = replace(world, description=world.description.model_copy(update=changes))
    folder, logits = tmp_path_factory.mktemp(request.param), mean_logits(world)
    saved_model.save(folder, world.model, world.description, ())
    return Mirrored(world, folder, logits, expit(logits) if by_label else softmax(logits / TEMPERATURE, axis=1))


def test_every_way_to_ask_gives_the_mean_of_both_images(mirrored: Mirrored) -> None:
    images, loaded = mirrored.world.images, tf.saved_model.load(str(mirrored.folder))
    for answer in (
        loaded(images),
        loaded.signatures["serving_default"](image=tf.constant(images)),
        loaded.signatures["classify_bytes"](image=[tf.io.encode_png(image).numpy() for image in images]),
    ):
        require_decided(mirrored, *saved_model.by_name(answer))
        np.testing.assert_allclose(answer["probabilities"], mirrored.probabilities, atol=1e-6)
    classifier = Classifier(loaded, scoring.CLASSES)
    predicted = [each.probabilities for each in classifier.predict(list(images[..., 0]))]
    np.testing.assert_allclose(predicted, mirrored.probabilities, atol=1e-6)


@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "/CPU:0"]])
def test_evaluation_has_the_same_logits_on_one_device_and_several(mirrored: Mirrored, devices) -> None:
    world = mirrored.world
    predict = inference.on_devices(world.model, world.description, devices)
    np.testing.assert_allclose(predict(tf.constant(world.images)), mirrored.logits, atol=1e-5)


def test_the_reference_of_drift_counts_the_classes_of_the_mean(mirrored: Mirrored) -> None:
    world = mirrored.world
    encoded = tf.constant([tf.io.encode_png(image).numpy() for image in world.images])
    found = features.Measured(world.model, world.description)(encoded)
    np.testing.assert_allclose(found.logits, mirrored.logits, atol=1e-5)


def require_decided(mirrored: Mirrored, decided: NDArray[np.int64], given: Floats, grid: float = 0) -> None:
    """The classes, or the labels, are those of the probabilities; `grid`: steps to which these are rounded."""
    assert (decided.dtype, given.dtype) == (np.int64, np.float32)
    if (thresholds := mirrored.world.description.confidence.thresholds) is None:
        assert (given.max(axis=1) - given[np.arange(len(decided)), decided] <= grid).all()
        return
    distances = given - np.float32(thresholds)
    apart = np.abs(distances) > grid
    np.testing.assert_array_equal(decided[apart], (distances >= 0)[apart])
    assert 0.2 < decided.mean() < 0.8


@pytest.mark.fast_rows("multiclass-tflite_int8", "multilabel-slim_graph")
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_averages(mirrored: Mirrored, name: str) -> None:
    converted(mirrored.folder, name)
    decided, probabilities = parity.backends(mirrored.folder, [name])[-1].outputs(IMAGES)
    error = 0.3 if name == "tflite_int8" else FORMATS[name].difference
    np.testing.assert_allclose(probabilities, mirrored.probabilities, atol=error)
    require_decided(mirrored, decided, probabilities, 1 / 256 if name == "tflite_int8" else 0)


def test_a_temperature_is_fitted_to_the_mean(tmp_path: Path) -> None:
    world = scoring.world(EXAMPLES)
    scoring.write_records(tmp_path, world, {"validation": EXAMPLES, "test": EXAMPLES})
    chosen = scoring.configured(tmp_path, 7)
    evaluation = chosen.evaluate.model_copy(update={"calibrate": True})
    changed, given = chosen.model_copy(update={"evaluate": evaluation}), (world.model, world.description)
    found = split.evaluate(changed, "test", lambda: given, ["CPU:0"], mirror=True)
    logits = mean_logits(world)
    temperature = confidence.fit_temperature(logits, world.labels)
    assert found.confidence.temperature == pytest.approx(temperature, rel=1e-3)
    expected = softmax(logits / found.confidence.temperature, axis=1)
    np.testing.assert_allclose(found.predictions.probabilities, expected, atol=1e-6)


def test_a_network_that_averages_itself_is_refused_by_one_line() -> None:
    values = config.read(options.defaults())
    values["model"]["name"], values["preprocessing"]["image_size"] = "fast_cnn", 32
    values["export"]["mirror"] = True
    with pytest.raises(ConfigError, match=r"^export.mirror must be false for fast_cnn, got true: it averages"):
        config.check(values)
