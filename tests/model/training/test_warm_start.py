"""Weights to start from: where they may lie, what is refused, what a model is given."""

import logging
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from support.training import initialize_weights

from perennial.base.config import Config
from perennial.base.config.data import ModelConfig
from perennial.base.errors import ConfigError, DataError
from perennial.data.preprocessing import ImageSpec
from perennial.model.export import saved_model
from perennial.model.models import model_folder
from perennial.model.models.model_folder import Description
from perennial.model.training import warm_start
from perennial.model.training.checkpoints import Checkpoints

STEP = "step-000000002"


def description(classes: int = 3) -> Description:
    options = {"dropout": None, "conv_stddev": None, "labels_offset": 0}
    square = {"height": 8, "width": 8, "channels": 1, "image_size": 8}
    return Description(
        name="mnist_cnn",
        options=ModelConfig(name="mnist_cnn", **options),
        classes=[str(number) for number in range(classes)],
        pixels=ImageSpec(preprocessing="rescale", grayscale=False, fast=True, **square),
        data="",
        weights_sha256="",
    )


@pytest.fixture(scope="module")
def source() -> keras.Model:
    return description().build()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, source: keras.Model) -> Path:
    """The weights of one model in every form that a training can start from."""
    folder = tmp_path_factory.mktemp("sources")
    whole = description().model_copy(update={"weights_sha256": model_folder.weights_sha256(source)})
    model_folder.save(folder / "model", source, whole)
    saved_model.save(folder / "export", source, whole, ())
    groups = {"weights": source.weights, "averages": [source.weights[0].value]}
    with Checkpoints(folder / "checkpoints", max_to_keep=2) as checkpoints:
        checkpoints.save(2, groups, {"model": whole.model_dump(mode="json")})
    return folder


def started(load, path: Path, **values: object) -> tuple[warm_start.StartWeights, Config]:
    config = load(**{"train.warm_start.path": str(path), **values})
    initialize_weights(config)
    return warm_start.read(config), config


@pytest.fixture
def begin(load, sources: Path):
    """Gives a model the weights of the model folder and returns what it then has, by path."""

    def give(model: keras.Model, **values: object) -> dict[str, np.ndarray]:
        options = {f"train.warm_start.{key}": value for key, value in values.items()}
        start, config = started(load, sources / "model", **options)
        warm_start.begin(model, start, config.train.warm_start)
        return {weight.path: weight.numpy() for weight in model.weights}

    return give


@pytest.mark.fast_rows("export", "checkpoints")
@pytest.mark.parametrize("form", ["model", "export", "checkpoints", f"checkpoints/{STEP}"])
def test_every_form_gives_the_same_weights_and_digest(load, sources, source, form) -> None:
    start, config = started(load, sources / form)
    shutil.rmtree(config.paths.initial_weights)
    assert warm_start.read(config, pinned=False).sha256 == start.sha256
    assert start.weights.keys() == {weight.path for weight in source.weights}
    for weight in source.weights:
        np.testing.assert_array_equal(start.weights[weight.path], weight)
    assert start.sha256 == started(load, sources / "model")[0].sha256


@pytest.mark.fast_rows(
    "removed-model/weights.index",
    "removed-checkpoints/step-000000002/checkpoint.json",
    "cut-model/model.json",
    "cut-export/variables/variables.index",
    "changed-export/assets.extra/model.json",
    "changed-checkpoints/step-000000002/variables.data-00000-of-00001",
)
@pytest.mark.parametrize(
    "file",
    [
        "model/model.json",
        "model/weights.index",
        "model/weights.data-00000-of-00001",
        "export/assets.extra/model.json",
        "export/variables/variables.index",
        "export/variables/variables.data-00000-of-00001",
        f"checkpoints/{STEP}/checkpoint.json",
        f"checkpoints/{STEP}/variables.index",
        f"checkpoints/{STEP}/variables.data-00000-of-00001",
    ],
)
@pytest.mark.parametrize("harm", ["removed", "cut", "changed"])
def test_damage_to_any_file_is_told(load, sources: Path, tmp_path: Path, file: str, harm: str) -> None:
    shutil.copytree(sources, tmp_path / "sources")
    damaged = tmp_path / "sources" / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 0xFF
    damaged.write_bytes(content[: len(content) // 2] if harm == "cut" else content)
    if harm == "removed":
        damaged.unlink()
    form = tmp_path / "sources" / file.partition("/")[0]
    for path in (form, form / STEP) if form.name == "checkpoints" else (form,):
        with pytest.raises(DataError, match=r"train\.warm_start\.path: "):
            started(load, path)


def test_a_saved_model_of_another_program_is_told(load, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(DataError, match=r"has no assets\.extra/model\.json"):
        started(load, tmp_path / "foreign")


@pytest.mark.parametrize("kind", ["nothing", "file", "empty folder"])
def test_a_path_without_weights_is_refused_with_the_kinds_there_are(load, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "weights-from-here"
    if kind == "file":
        path.write_bytes(b"")
    if kind == "empty folder":
        path.mkdir()
    with pytest.raises(
        ConfigError, match=r"train\.warm_start\.path: .*model folder \(models/weights\), an export"
    ):
        started(load, path)


def test_a_missing_file_of_imagenet_weights_is_refused(load) -> None:
    with pytest.raises(ConfigError, match=r"model\.weights: absent\.h5 does not exist"):
        initialize_weights(load(**{"model.weights": "absent.h5"}))


def test_another_file_of_imagenet_weights_makes_another_start(load, workspace: Path) -> None:
    digests = [warm_start.read(load()).sha256]
    for content in (b"one", b"two"):
        (workspace / "weights.h5").write_bytes(content)
        config = load(**{"model.weights": "weights.h5"})
        initialize_weights(config)
        digests.append(warm_start.read(config).sha256)
    assert len(set(digests)) == 3
    assert digests[0] is None


def test_what_exclude_names_stays_as_it_was_drawn(begin, source: keras.Model, caplog) -> None:
    caplog.set_level(logging.INFO, "perennial")
    model = description(classes=5).build()
    before = {weight.path: weight.numpy() for weight in model.weights}
    found = begin(model, exclude=["logits"])
    assert caplog.messages[-1].endswith("other layers: logits")
    for weight in source.weights:
        expected = before[weight.path] if "logits" in weight.path else weight
        np.testing.assert_array_equal(found[weight.path], expected)


def test_one_weight_of_a_layer_can_be_excluded(begin, source: keras.Model) -> None:
    model = description().build()
    model.get_layer("logits").bias.assign([7.0, 8.0, 9.0])
    found = begin(model, exclude=["logits/bias"])
    np.testing.assert_array_equal(found["logits/bias"], [7, 8, 9])
    np.testing.assert_array_equal(found["logits/kernel"], source.get_layer("logits").kernel)


def with_another_layer() -> keras.Model:
    model = description().build()
    outputs = keras.layers.Dense(2, name="added")(model.output)
    return keras.Model(model.input, outputs, name=model.name)


def with_other_layers() -> keras.Model:
    image = keras.Input((4,))
    return keras.Model(image, keras.layers.Dense(2, name="alone")(image))


MISFITS = {
    "another shape": (
        description(classes=5).build, {},
        r"logits/kernel \[\d+, 3\] for \[\d+, 5\], .*add \['logits'\] to train\.warm_start\.exclude",
    ),
    "weights that lack": (
        with_another_layer, {},
        r"lacks added/kernel, added/bias; .*ignore_missing: true, or add \['added'\] to",
    ),
    "other layers": (
        with_other_layers, {"ignore_missing": True},
        "none of this model's weights; it has the layers .*logits, expected alone",
    ),
    "a pattern that names nothing": (
        description().build, {"exclude": ["logit"]},
        "exclude: no layer .* named logit; there are conv1, conv2, dense, logits$",
    ),
    "all excluded": (description().build, {"exclude": ["*"]}, "leaves no weight of"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "options", "message"), MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit_is_refused_with_what_to_set_and_nothing_is_taken(
    begin, build, options: dict[str, object], message: str
) -> None:
    model = build()
    before = model_folder.weights_sha256(model)
    with pytest.raises(ConfigError, match=message):
        begin(model, **options)
    assert model_folder.weights_sha256(model) == before


def test_weights_that_lack_start_new_where_that_is_asked_for(begin, source: keras.Model) -> None:
    model = with_another_layer()
    new = model.get_layer("added").kernel.numpy()
    found = begin(model, ignore_missing=True)
    np.testing.assert_array_equal(found["added/kernel"], new)
    np.testing.assert_array_equal(found["logits/kernel"], source.get_layer("logits").kernel)


@pytest.fixture
def model() -> keras.Model:
    x = image = keras.Input((4,))
    x = keras.layers.Dense(3, name="first")(x)
    x = keras.layers.BatchNormalization(name="first_bn")(x)
    x = keras.layers.Flatten(name="flat")(x)
    return keras.Model(image, keras.layers.Dense(2, name="logits")(x), name="small")


def trained(model: keras.Model) -> list[str]:
    return [weight.path for weight in model.trainable_weights]


def test_only_the_layers_that_patterns_name_are_trained_and_all_without_a_pattern(model: keras.Model) -> None:
    before = trained(model)
    warm_start.set_trainable(model, ("log*",))
    assert trained(model) == ["logits/kernel", "logits/bias"]
    warm_start.set_trainable(model, ())
    assert trained(model) == before


def test_frozen_batch_normalization_uses_its_statistics_and_leaves_them_as_they_are(model: keras.Model) -> None:
    images = np.random.default_rng(0).normal(5, 3, (8, 4)).astype(np.float32)
    statistics = model.get_layer("first_bn").non_trainable_weights
    expected, before = model(images, training=False).numpy(), [each.numpy() for each in statistics]
    warm_start.set_trainable(model, ("logits",))
    np.testing.assert_array_equal(model(images, training=True), expected)
    for each, value in zip(statistics, before, strict=True):
        np.testing.assert_array_equal(each, value)


@pytest.mark.parametrize("pattern", ["logit", "flat", "logits/kernel"])
def test_a_pattern_that_names_no_layer_with_weights_is_refused_with_those_there_are(model, pattern) -> None:
    with pytest.raises(
        ConfigError, match=rf"train\.trainable: .* named {pattern}; there are first, first_bn, logits$"
    ):
        warm_start.set_trainable(model, ("first", pattern))


def test_weights_are_found_by_their_path_trained_or_not(model: keras.Model) -> None:
    warm_start.set_trainable(model, ("logits",))
    found = warm_start.weights_matching(model, ("*/kernel",))
    assert [weight.path for weight in found] == ["first/kernel", "logits/kernel"]


@pytest.mark.parametrize(
    ("pattern", "expected"), [("logits", True), ("net/logits/kern*", True), ("kernel", False), ("net", False)]
)
def test_a_pattern_names_a_weight_by_its_path_or_by_its_layer(pattern: str, expected: bool) -> None:
    """Keras puts the name of a sequential model before the paths of its weights."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="logits")], name="net")
    of = warm_start.layers_of_weights(model)
    assert warm_start.names_weight((pattern,), "net/logits/kernel", of) is expected


@pytest.mark.parametrize("form", ["model", "export", "checkpoints"])
def test_untrained_weights_of_other_classes_are_refused_and_other_pixels_logged(
    load, sources: Path, form: str, caplog
) -> None:
    start, _ = started(load, sources / form)
    warm_start.refuse_other_classes(start, description())
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    swapped = description().model_copy(update={"classes": ["0", "2", "1"]})
    for other, what in (
        (swapped, "output 1 is 1 there and 2"),
        (description(4), "output 3 is none there and 3"),
    ):
        with pytest.raises(
            ConfigError, match=f"{what} in the data; take data with the classes 0, 1, 2, or train"
        ):
            warm_start.refuse_other_classes(start, other)
    pixels = description().pixels.model_copy(update={"preprocessing": "vgg"})
    warm_start.refuse_other_classes(start, description().model_copy(update={"pixels": pixels}))
    assert (
        "of a model with preprocessing rescale to 8x8x1 (resize exact); here it is preprocessing vgg"
        in caplog.text
    )
