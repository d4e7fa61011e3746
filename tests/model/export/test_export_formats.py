"""The formats of an export besides the SavedModel: their predictions, and when they are refused."""

import importlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from support import scoring
from support.scoring import CROPPED, GREY, World
from tensorflow.python.util import deprecation

from perennial.base import choices
from perennial.base.errors import ConfigError
from perennial.model import export_layout
from perennial.model.export import export_formats, loading, parity, saved_model
from perennial.model.export.export_formats import FORMATS

ANY = GREY.model_copy(update={"preprocessing": "lenet", "height": None, "width": None, "image_size": 8})
IMAGES = [(b"", image) for image in scoring.world(20).images]


def require_installed(name: str) -> None:
    for package in FORMATS[name].packages:
        pytest.importorskip(package)


def converted(export: Path, name: str) -> Path:
    """The file of a format in an export, converted by the first test that needs it."""
    require_installed(name)
    file = export / export_layout.EXTRA / FORMATS[name].file
    if not file.exists():
        export_formats.write(export, [name], lambda: (image for _, image in IMAGES))
    return file


def exported(folder: Path, pixels: object = GREY, world: World | None = None) -> Path:
    world = world or scoring.world(20)
    folder.mkdir()
    saved_model.save(folder, world.model, world.description.model_copy(update={"pixels": pixels}), ())
    return folder


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("formats") / "export")


@pytest.fixture(scope="module")
def normalized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel with response normalization and standardized images."""
    world = scoring.world(20, "cifar10_tutorial", CROPPED)
    return exported(tmp_path_factory.mktemp("normalized") / "export", CROPPED, world)


def test_the_formats_are_those_that_can_be_chosen() -> None:
    assert get_args(choices.Format) == tuple(FORMATS)


@pytest.mark.fast_rows("tflite_int8", "frozen_graph")
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_within_its_bounds_and_reproducible(export: Path, name: str) -> None:
    file = converted(export, name)
    contents = [file.read_bytes()]
    export_formats.write(export, [name], lambda: (image for _, image in IMAGES))
    contents.append(file.read_bytes())
    assert contents[0] == contents[1]
    whole, _, other = parity.backends(export, [name])
    (expected, most), (classes, probabilities) = whole.outputs(IMAGES), other.outputs(IMAGES)
    assert (other.name, other.bytes, other.difference) == (name, len(contents[1]), FORMATS[name].difference)
    assert np.abs(probabilities - most).max() <= (0.3 if name == "tflite_int8" else other.difference)
    assert (classes == expected).mean() >= min(other.agreement, 0.9)
    assert classes.dtype == np.int64
    assert probabilities.dtype == np.float32


@pytest.mark.fast_rows("tflite_float32")
@pytest.mark.parametrize("name", ["tflite_float32", "tflite_int8", "onnx"])
def test_a_runtime_refuses_another_type_than_uint8(export: Path, name: str) -> None:
    converted(export, name)
    predict = parity.backends(export, [name])[-1].predict
    for kind in (np.float32, np.float64, np.int32, np.int64):
        with pytest.raises(Exception, match=r"(?i)type"):
            predict(np.stack([image for _, image in IMAGES[:1]]).astype(kind))


@pytest.mark.slow
def test_an_image_of_any_contrast_is_standardized_before_int8(normalized: Path) -> None:
    noise = np.random.default_rng(0).uniform(-1, 1, (32, 32, 3))
    images = [(b"", (128 + contrast * noise).astype(np.uint8)) for contrast in np.linspace(0, 127, 300)]
    export_formats.write(normalized, ["tflite_int8"], lambda: (image for _, image in images[::10]))
    whole, _, converted = parity.backends(normalized, ["tflite_int8"])
    np.testing.assert_allclose(converted.outputs(images)[1], whole.outputs(images)[1], atol=0.05)


@pytest.mark.fast_rows("tflite_int8-0.4")
@pytest.mark.parametrize(("name", "share"), [("tflite_float16", 0.6), ("tflite_int8", 0.4)])
def test_lower_precision_makes_smaller_files(export: Path, name: str, share: float) -> None:
    weights = sum(file.stat().st_size for file in (export / "variables").iterdir())
    assert converted(export, name).stat().st_size < share * weights


def test_a_frozen_graph_has_no_variables_and_the_nodes_that_old_programs_name(export: Path) -> None:
    frozen, text = (converted(export, name) for name in ("frozen_graph", "text_graph"))
    binary = tf.compat.v1.GraphDef.FromString(frozen.read_bytes())
    assert text_format.Parse(text.read_text(), tf.compat.v1.GraphDef()) == binary
    assert {"image", "classes", "probabilities"} <= {node.name for node in binary.node}
    assert not [node.op for node in binary.node if "Var" in node.op]


def test_onnx_has_gelu_of_transformers_and_equal_bytes(tmp_path: Path) -> None:
    """GELU needs an operation that ONNX does not have; and tf2onnx merges equal operations."""
    require_installed("onnx")
    export, world = tmp_path / "export", scoring.world(20)
    inputs = keras.Input(world.model.input.shape[1:], name="image")
    features = keras.layers.Flatten(name="flatten")(inputs)
    parts = [keras.layers.Dense(10, "gelu", name=f"dense_{number}")(features) for number in range(3)]
    model = keras.Model(inputs, keras.layers.Add(name="logits")(parts), name=world.model.name)
    export.mkdir()
    saved_model.save(export, model, world.description, ())
    content = (file := converted(export, "onnx")).read_bytes()
    export_formats.write(export, ["onnx"], lambda: ())
    assert file.read_bytes() == content
    session = importlib.import_module("onnxruntime").InferenceSession(str(file))
    names = [each.name for each in (*session.get_inputs(), *session.get_outputs())]
    assert names == ["image", "classes", "probabilities"]
    whole, _, other = parity.backends(export, ["onnx"])
    np.testing.assert_allclose(other.outputs(IMAGES)[1], whole.outputs(IMAGES)[1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frozen_graph", "onnx"])
def test_some_formats_take_images_of_any_size(tmp_path: Path, name: str) -> None:
    require_installed(name)
    export = exported(tmp_path / "export", ANY)
    export_formats.write(export, [name], lambda: ())
    images = [(b"", np.full((side, 11, 1), 7 * side, np.uint8)) for side in (5, 12, 5)]
    whole, _, converted = parity.backends(export, [name])
    np.testing.assert_allclose(converted.outputs(images)[1], whole.outputs(images)[1], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "pixels", "message"),
    [
        ("tflite_int8", ANY, "images of one size"),
        ("tflite_float32", GREY.model_copy(update={"image_size": 16}), "ScaleAndTranslate"),
    ],
)
def test_a_format_that_cannot_preprocess_is_refused(name: str, pixels: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"export.formats: {name} .*{message}.*nothing was done"):
        export_formats.require(["frozen_graph", name], pixels)


def test_a_format_whose_packages_are_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "onnx", replace(FORMATS["onnx"], packages=("json", "no_such_package")))
    with pytest.raises(ConfigError, match=r"onnx needs no_such_package; .*`perennial add onnx`"):
        export_formats.require(["onnx"], GREY)


def test_possible_formats_are_accepted() -> None:
    export_formats.require([name for name, each in FORMATS.items() if not each.packages], GREY)
    export_formats.require(["frozen_graph", "text_graph"], ANY)


def convert_to_onnx(export: Path) -> None:
    require_installed("onnx")
    export_formats.write(export, ["onnx"], lambda: ())


@pytest.mark.fast_rows("asked")
@pytest.mark.parametrize(
    "use",
    [loading.load, lambda export: parity.backends(export, []), convert_to_onnx],
    ids=["loaded", "asked", "onnx"],
)
def test_warnings_about_gradients_and_deprecated_functions_are_suppressed(
    normalized: Path,
    use: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deprecation, "_PRINTED_WARNING", {})  # TensorFlow says each once
    use(normalized)
    assert caplog.messages == []


def test_other_messages_of_a_library_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("absl")
    with loading.suppressed("absl", "known: %s"):
        log.warning("known: %s", "it")
        log.warning("unknown: %s", "it")
    log.warning("known: %s", "later")
    assert caplog.messages == ["unknown: it", "known: later"]
