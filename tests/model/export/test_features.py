"""What an export computes to find drift."""

from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import scoring
from support.scoring import World

from perennial.data.records import manifest
from perennial.model.export import features, reference, saved_model
from perennial.model.export.reference import FEATURES, Reference

VALIDATION = 60


@dataclass(frozen=True)
class Measured:
    """A world with records, the reference of its validation split, and an export with it."""

    world: World
    records: Path
    reference: Reference
    export: Path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder, world = tmp_path_factory.mktemp("measured"), scoring.world()
    scoring.write_records(folder / "records", world, {"validation": VALIDATION})
    data = manifest.load(folder / "records")
    found = features.measure(world.model, world.description, folder / "records", data, 1000)
    assert isinstance(found, Reference)
    (folder / "export").mkdir()
    saved_model.save(folder / "export", world.model, world.description, (), found.bandwidth)
    return Measured(world, folder / "records", found, folder / "export")


@pytest.fixture(scope="module")
def statistics(measured: Measured) -> dict[str, np.ndarray]:
    """What a loaded export says of the validation images."""
    images = [tf.io.encode_png(image) for image in measured.world.images[:VALIDATION]]
    loaded = tf.saved_model.load(str(measured.export))
    return {name: each.numpy() for name, each in loaded.statistics(tf.stack(images)).items()}


def test_the_export_gives_the_features_of_the_reference(measured: Measured, statistics) -> None:
    assert statistics["features"].shape == (VALIDATION, FEATURES)
    found = reference.unpacked(measured.reference.features)
    np.testing.assert_allclose(statistics["features"], found, atol=4e-5)  # half precision


def test_brightness_is_the_mean_of_the_pixels(measured: Measured, statistics) -> None:
    expected = measured.world.images[:VALIDATION].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(statistics["brightness"], expected, rtol=1e-5)


def test_the_reference_counts_predicted_classes(measured: Measured) -> None:
    predicted = measured.world.logits[:VALIDATION].argmax(axis=1)
    assert list(measured.reference.classes.values()) == np.bincount(predicted, minlength=10).tolist()


def test_the_distance_of_features_is_that_of_the_kernel() -> None:
    """Their product approximates the Gaussian kernel, to the accuracy of 256 random features."""
    values = np.random.default_rng(0).normal(size=(40, 20)).astype(np.float32)
    found = features.random_features(tf.constant(values), 6.0).numpy()
    squares = ((values[:, None] - values) ** 2).sum(axis=2)
    np.testing.assert_allclose(found @ found.T, np.exp(-squares / 72), atol=0.25)


def test_random_weights_are_the_same_numbers_everywhere() -> None:
    found = features.random_features(tf.ones((1, 3)), 2.0).numpy()[0, :3]
    np.testing.assert_allclose(found, [-0.016423, -0.033576, 0.034936], atol=1e-6)


def test_a_reference_adds_no_signature_and_saves_no_weight_again(measured: Measured, tmp_path: Path) -> None:
    saved_model.save(tmp_path, measured.world.model, measured.world.description, ())
    plain, full = (tf.saved_model.load(str(each)) for each in (tmp_path, measured.export))
    assert not hasattr(plain, "statistics")
    assert list(plain.signatures) == list(full.signatures)
    nodes = [
        [(node.name, node.op) for node in each.infer.concrete_functions[0].graph.as_graph_def().node]
        for each in (plain, full)
    ]
    assert nodes[0] == nodes[1]
    sizes = [
        sum(file.stat().st_size for file in (each / "variables").iterdir())
        for each in (tmp_path, measured.export)
    ]
    assert sizes[1] - sizes[0] < 1000  # bytes: the names of the functions


@pytest.mark.parametrize(
    ("most", "split", "reason"),
    [
        (0, "validation", "export.reference_examples is 0"),
        (49, "validation", "it needs 50 validation images, and there are 49"),
        (1000, "test", "it needs 50 validation images, and there are no"),
    ],
)
def test_too_few_images_give_a_reason(tmp_path, measured, most, split, reason) -> None:
    scoring.write_records(tmp_path / "records", measured.world, {split: VALIDATION})
    data = manifest.load(tmp_path / "records")
    found = features.measure(measured.world.model, measured.world.description, tmp_path / "records", data, most)
    assert found == reason


def network(*layers: keras.Layer) -> keras.Model:
    inputs = outputs = keras.Input((8, 8, 3))
    for layer in layers:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


@pytest.mark.parametrize(
    ("layers", "name"),
    [
        ([keras.layers.Flatten(), keras.layers.Dense(7, name="last"), keras.layers.Dense(4)], "last"),
        (
            [
                keras.layers.Conv2D(6, 3, name="last"),
                keras.layers.Conv2D(4, 1),
                keras.layers.BatchNormalization(),
                keras.layers.GlobalAveragePooling2D(),
            ],
            "last",
        ),
        ([keras.layers.Flatten(), keras.layers.Dense(4, name="own")], "flatten"),
        ([network(keras.layers.Flatten(), keras.layers.Dense(4))], "functional"),
    ],
)
def test_the_penultimate_layer_is_what_makes_the_input_of_the_logits(layers, name: str) -> None:
    assert features.penultimate(network(*layers)).layer.startswith(name)


def test_a_linear_model_has_its_logits_measured() -> None:
    inputs = keras.Input((8, 8, 3))
    model = keras.Model(inputs, keras.layers.Conv2D(4, 8, name="only")(inputs))
    assert features.penultimate(model).layer == "only"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v1_025", "vgg_a", "fast_cnn", "inception_v1", "nasnet_cifar"])
def test_networks_with_dropout_places_and_mirrors_have_a_penultimate_layer(build, name: str) -> None:
    model = build(name)
    found = features.penultimate(model)
    assert found.layer != model.layers[-1].name
    assert found.tensor.shape[-1] > 10
