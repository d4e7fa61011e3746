"""Exports: what they answer, and what they are made of."""

import errno
import resource
from pathlib import Path
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from perennial.base import failures
from perennial.base.errors import DataError, Failure
from perennial.model.evaluation import inference
from perennial.model.export import loading, saved_model

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3)).astype(np.uint8)


def exported(folder: Path, model: keras.Model, description: object, bandwidth: float | None = None) -> Path:
    folder.mkdir()
    labels = folder.parent / "labels.txt"
    labels.write_text("0:zero\n")
    saved_model.save(folder, model, description, (labels,), bandwidth)
    return folder


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory, build, describe) -> tuple[Path, keras.Model]:
    """An export that no test changes, and its model."""
    model = build("cifarnet")
    return exported(tmp_path_factory.mktemp("export") / "export", model, describe(model)), model


@pytest.fixture(scope="module")
def loaded(export) -> object:
    return tf.saved_model.load(str(export[0]))


def test_it_answers_raw_pixels_with_classes_and_probabilities(export, loaded) -> None:
    _, model = export
    answer = loaded.signatures["serving_default"](image=tf.constant(IMAGES))
    expected = keras.ops.softmax(model(IMAGES / np.float32(255), training=False)).numpy()
    np.testing.assert_allclose(answer["probabilities"].numpy(), expected, atol=1e-6)
    np.testing.assert_array_equal(answer["classes"].numpy(), expected.argmax(axis=1))
    assert answer["classes"].dtype == tf.int64
    assert answer["probabilities"].dtype == tf.float32


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, build, describe) -> None:
    model = build("cifarnet")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # bytes; the variables have more
    try:
        with pytest.raises(OSError, match=r"cannot be written: \S*variables\S*; File too large$") as full:
            exported(tmp_path / "export", model, describe(model))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failures.kind(full.value) is Failure.DISK  # which a flow tries again


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_the_loaded_model_takes_raw_pixels_of_both_types(loaded, kind: type) -> None:
    expected = loaded.signatures["classify"](image=tf.constant(IMAGES))["probabilities"]
    for images in (IMAGES.astype(kind), tf.constant(IMAGES, kind)):
        np.testing.assert_allclose(loaded(images)["probabilities"], expected, atol=1e-6)


@pytest.mark.fast_rows("0 to 1", "float64")
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.float32(IMAGES / 255), "raw pixels from 0 to 255"),
        (np.float32(IMAGES / 127.5 - 1), "raw pixels from 0 to 255"),
        ((IMAGES / 255).tolist(), "raw pixels from 0 to 255"),
        (IMAGES / 255, "Could not find matching concrete function"),
        (IMAGES.astype(np.int64), "Could not find matching concrete function"),
    ],
    ids=["0 to 1", "-1 to 1", "a list", "float64", "int64"],
)
def test_the_loaded_model_refuses_other_types_and_values(loaded, images: object, message: str) -> None:
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        loaded(images)


def test_a_signature_refuses_tensors_of_another_type(loaded) -> None:
    classify = loaded.signatures["classify"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected to be a uint8 tensor"):
        classify(image=tf.constant(IMAGES / 255, tf.float32))


def test_an_auxiliary_classifier_is_in_no_answer(build, describe) -> None:
    image = keras.Input((32, 32, 3))
    features = keras.layers.GlobalAveragePooling2D()(image)
    heads = {name: keras.layers.Dense(10)(features) for name in ("logits", "aux_logits")}
    model, description = keras.Model(image, heads), describe(build("cifarnet"))
    expected = model(IMAGES / np.float32(255))["logits"].numpy()
    answer = saved_model.Servable(model, description, ()).signatures()["classify"](image=tf.constant(IMAGES))
    assert set(answer) == {"classes", "probabilities"}
    np.testing.assert_array_equal(answer["classes"].numpy(), expected.argmax(axis=1))
    logits = inference.predictor(model, description.pixels)(tf.constant(IMAGES))
    np.testing.assert_allclose(logits, expected, atol=1e-6)


@pytest.mark.fast_rows("cifar10_tutorial-mixed_float16")
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", ["cifar10_tutorial", "mobilenet_v1_025"])
def test_mixed_precision_gives_float32(build, describe, policy, name: str, precision: str) -> None:
    policy(precision)
    model = build(name, (32, 32, 3))
    description, images = describe(model), tf.constant(IMAGES)
    logits = inference.predictor(model, description.pixels)(images)
    answer = saved_model.Servable(model, description, ()).signatures()["classify"](image=images)
    assert logits.dtype == tf.float32
    assert answer["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(answer["probabilities"].numpy().sum(axis=1), 1, atol=1e-6)


def test_images_of_many_sizes_are_judged_ready_for_the_model(build, describe) -> None:
    model = build("lenet", (8, 8, 1))
    pixels = describe(model).pixels.model_copy(update={"height": None, "width": None})
    ready = np.random.default_rng(0).uniform(-1, 1, (3, 8, 8, 1)).astype(np.float32)
    logits = inference.predictor(model, pixels)(tf.constant(ready)).numpy()
    np.testing.assert_allclose(logits, model(ready, training=False).numpy(), atol=1e-6)


def test_who_loads_an_export_decodes_in_parallel_and_asks_the_model_by_batches(export) -> None:
    loaded = tf.saved_model.load(str(export[0]))
    encoded = tf.stack([tf.io.encode_png(image) for image in IMAGES])
    ready = tf.data.Dataset.from_tensor_slices(encoded).map(loaded.prepare, num_parallel_calls=2).batch(5)
    (images,) = ready
    assert images.shape == (5, 32, 32, 3)
    answer, expected = loaded.infer(images), loaded.signatures["classify_bytes"](image=encoded)
    for name in ("classes", "probabilities"):
        np.testing.assert_allclose(answer[name], expected[name], atol=1e-6)


def test_a_session_of_tensorflow_1_which_tensorflow_serving_resembles_gets_the_same_answers(export) -> None:
    folder, model = export
    expected = keras.ops.softmax(model(IMAGES / np.float32(255), training=False)).numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tags = [tf.saved_model.SERVING]
        signature = tf.compat.v1.saved_model.load(session, tags, str(folder)).signature_def["serving_default"]
        answer = session.run(signature.outputs["probabilities"].name, {signature.inputs["image"].name: IMAGES})
    np.testing.assert_allclose(answer, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("error", "of_machine"),
    [
        (OSError(errno.EMFILE, "Too many open files"), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (MemoryError(), True),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), True),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), False),
        (OSError("SavedModel file does not exist"), False),
        (tf.errors.DataLossError(None, None, "damaged"), False),
        (ValueError("no such op"), False),
    ],
    ids=str,
)
def test_an_error_of_the_machine_is_none_of_the_model(error, of_machine, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tf.saved_model, "load", Mock(side_effect=error))
    with pytest.raises(type(error) if of_machine else DataError):
        loading.load(tmp_path)
