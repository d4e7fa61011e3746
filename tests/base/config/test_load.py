"""Reading params.yaml: what is accepted, and what each error names."""

import json
import os
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.edits import edit

from perennial.base import config
from perennial.base.config import error_messages
from perennial.base.errors import ConfigError
from perennial.base.params import options

KEYS = [each.key for each in options.options()]
SECTIONS = list(dict.fromkeys(key.split(".")[0] for key in KEYS))
SECRET = "hunter2"
NAN, INF = float("nan"), float("inf")
WRONG_VALUES = {
    "dataset.name": ["digit", "mnst", "zebra", None],
    "dataset.base_url": ["ftp://host/", 5, "http://", "http://[::1/mnist/", "https:///mnist/", "file://tmp/x",
                         "http://h/x?a=1", "https://h/#x", "http://h:port/"],
    "dataset.digests": ["record "],
    "dataset.validation_fraction": [-0.1, 1.0],
    "dataset.seed": [-1],
    "dataset.shards": [0, 100_000, "all", "4", 4.0, True, None],
    "dataset.path": [None, "~/photos", "s3://bucket/photos", "a" * 256],
    "validate.decode": [True],
    "validate.near_duplicate_bits": [9, -1, 1.0],
    "validate.max_class_ratio": [0.5],
    "validate.max_label_drift": [5, 0],
    "validate.max_brightness_drift": [NAN],
    "validate.severity": ["warn"],
    "validate.severity.drift_labels": [False],
    "compute.processes": [0, "two"],
    "preprocessing.image_size": [0, 5000, "net", "299"],
    "train.epochs": [0, 2.0],
    "train.batch_size": ["64", True, None, 2**40],
    "train.stop_threshold": [76, 99, 0, NAN],
    "train.learning_rate": [0, INF, "1e-3", 1e39, 1e-320],
    "train.devices": ["gpu", "gpu:0", "cpu:99999999999", "gpu:0,99999"],
    "train.deterministic": ["yes", 1],
    "train.intra_op_threads": [99_999_999_999, -1],
    "train.inter_op_threads": [99_999_999_999],
    "train.loss_scale": ["x", -1],
    "train.class_weights": ["x", 5],
    "checkpoints.interval_s": [0, 1e12],
    "evaluate.batch_size": [0],
    "export.reference_examples": [-1, 2.5],
    "gate.min_accuracy": [97, -0.1],
    "paths.work": [5, None, "", "/", "..", ".", "x\0y"],
}  # fmt: skip
# what replaces the first `seed: 0`
UNREADABLE = {
    "a list that is not closed": "seed: [", "a tab as indentation": "\tseed: 0",
    "an unknown tag": "seed: !secret 0", "a Python object": "seed: !!python/object:os.system x",
    "a control character": "seed: \x07", "not a number": "seed: !!int abc", "not a date": "seed: 2024-13-45",
    "an integer beyond Python's limit": "seed: 1" + "0" * 5000, "lists nested too deep": "seed: " + "[" * 3000,
    "a duplicate key": "seed: 0\n  seed: 1", "a list that holds itself": "seed: &a [*a]",
}  # fmt: skip
CREDENTIALS = [
    ("dataset.base_url", f"http://user:{SECRET}@host/"),
    ("dataset.base_url", f"http://user:p@{SECRET}@host/"),
    ("dataset.base_url", f"http://user:p/{SECRET}@host/"),
    ("dataset.base_url", f"https://{SECRET}@host/mnist/"),
    ("dataset.base_url", f"https://host/mnist/?token={SECRET}"),
    ("dataset.base_url", f"user:{SECRET}@host/mnist/"),
    ("dataset.base_url", f"https://host/?X-Amz-Signature={SECRET}"),
    ("dataset.path", f"https://user:{SECRET}@host/photos.zip"),
    ("dataset.path", f"s3://key:{SECRET}@bucket/photos"),
    ("publish.url", f"s3://bucket/models?aws_secret_access_key={SECRET}"),
    ("train.trainable", ["logits*", f"ftp://user:{SECRET}@host/x"]),
    ("paths.work", f"file://user:{SECRET}@host/x"),
]
ACCEPTED = [
    *(
        ("dataset.base_url", f"{url}/")
        for url in ("http://host:8080/a@b", "http://[::1]:80", "https://host/a:b")
    ),
    ("dataset.base_url", "file:///a@b/"),
    ("export.card.licence", "https://example.org/licence?lang=en"),
    *((key, value) for key in ("dataset.shards", "compute.processes") for value in ("auto", 1, 99_999)),
]
EXTREME = [
    0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**400), 1e-320, 1e308, -1e308, NAN, INF, -INF, True, None, "",
    " ", "x" * 100_000, "/" * 5000, "\0", "\n", "\ud800", "\u202e", "auto", "cpu:99999999999999999999",
    "gpu:1,1", "../..", "http://[::1", "file:///", "s3://", [], {}, [[]], [None], [2**63], [NAN], {"a": 1},
    [{}], b"\xff",
]  # fmt: skip


@pytest.fixture
def params(workspace):
    return workspace / "params.yaml"


@pytest.fixture
def replace(params):
    """Loads the parameters after a change of their file's text."""

    def change(old, new):
        edit(params, old, new, 1)
        return config.load(params)

    return change


def part(values, path):
    for key in path:
        values = values[key]
    return values


def lines(load, *arguments, **changes):
    """The lines of the error, each without the name of the file."""
    with pytest.raises(ConfigError) as refused:
        load(*arguments, **changes)
    return [line.split(": ", 1)[1] for line in str(refused.value).splitlines()]


def errors(change):
    """The keys that the errors name after a change of the values."""
    values = options.values(())
    change(values)
    with pytest.raises(ConfigError) as refused:
        config.check(values)
    return [line.split()[0] for line in str(refused.value).splitlines()]


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG_VALUES.items() for value in values]
)
def test_a_wrong_value_is_one_error_that_names_the_key(load, key, value):
    (line,) = lines(load, **{key: value})
    assert line.startswith(f"{key} ")


@pytest.mark.parametrize(("key", "value"), CREDENTIALS)
def test_credentials_are_refused_and_never_shown(load, key, value):
    found = lines(load, **{key: value})
    assert found[0].startswith(key)
    assert SECRET not in "".join(found)


@pytest.mark.parametrize("text", [f"[http://u:{SECRET}@h/", f"http://u:p@{SECRET}@h/\n  base_url: null"])
def test_a_file_that_is_not_yaml_shows_no_password(replace, text):
    with pytest.raises(ConfigError) as refused:
        replace("base_url: null", f"base_url: {text}")
    assert SECRET not in str(refused.value)


def test_marks_of_a_merge_are_named(replace):
    with pytest.raises(ConfigError, match="marks of a merge conflict"):
        replace("base_url: null", "base_url: null\n<<<<<<< HEAD\n  seed: 1\n=======\n  seed: 2\n>>>>>>> x")


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_a_value_without_credentials_and_within_its_limits_is_accepted(load, key, value):
    assert attrgetter(key)(load(**{key: value})) == value


@settings(max_examples=300 if os.environ.get("SLOW") else 25, deadline=None)
@given(key=st.sampled_from(KEYS), value=st.sampled_from(EXTREME) | st.integers() | st.floats() | st.text())
def test_an_extreme_value_is_accepted_or_a_configuration_error(key, value):
    values = options.values(())
    *above, name = key.split(".")
    part(values, above)[name] = value
    try:
        text = json.dumps(config.check(values).model_dump(mode="json"))
    except ConfigError as error:
        text = str(error)
    assert len(text.encode()) < 10_000  # can be printed, in full


def test_every_key_is_required_and_reported_with_its_default_and_the_remedy():
    for key in (*SECTIONS, *KEYS):
        *above, name = key.split(".")
        values = options.values(())
        default = part(values, above).pop(name)
        with pytest.raises(ConfigError) as refused:
            config.check(values)
        (line,) = str(refused.value).splitlines()
        assert line.startswith(f"{key} is missing")
        assert "perennial config --upgrade" in line
        assert key in SECTIONS or json.dumps(default) in line


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("content", [None, {}, [], "x", 5])
def test_a_section_without_its_keys_is_refused(section, content):
    found = errors(lambda values: values.update({section: content}))
    assert {key.split(".")[0] for key in found} == {section}


@pytest.mark.parametrize(
    ("key", "renamed", "nearest"), [("train.epochs", "epoch", "train.epochs?"), ("train", "trian", "train?")]
)
def test_a_misspelt_key_is_one_error_with_the_nearest_one(key, renamed, nearest):
    values = options.values(())
    *above, name = key.split(".")
    part(values, above)[renamed] = part(values, above).pop(name)
    with pytest.raises(ConfigError) as refused:
        config.check(values)
    assert str(refused.value).startswith(".".join([*above, renamed]))
    assert str(refused.value).endswith(nearest)


def test_a_missing_key_is_reported_beside_an_unknown_one():
    def change(values):
        values["gate"]["zzz"] = values["gate"].pop("min_accuracy")

    assert errors(change) == ["gate.min_accuracy", "gate.zzz"]


def test_an_element_of_a_list_is_named_by_its_index(load):
    assert lines(load, **{"train.class_weights": [1, -1]})[0].startswith("train.class_weights[1] ")
    assert lines(load, **{"train.class_weights": None, "train.trainable": ["a", 5]})[0].startswith(
        "train.trainable[1] "
    )


def test_a_key_that_is_not_text_is_refused(replace):
    assert lines(lambda: replace("  epochs: 30", "  5: 1\n  epochs: 30"))[0].startswith("train.5 ")


def test_every_error_has_a_line_that_names_the_file(load, params):
    with pytest.raises(ConfigError) as refused:
        load(**{"dataset.name": "digit", "train.batch_size": 0, "gate.min_accuracy": 2})
    named = [line.split()[:2] for line in str(refused.value).splitlines()]
    assert named == [[f"{params}:", key] for key in ("dataset.name", "gate.min_accuracy", "train.batch_size")]


def test_exactly_one_of_epochs_and_steps_is_set(load):
    (line,) = lines(load, **{"train.max_steps": 5})
    assert line.startswith("train.epochs and train.max_steps")
    assert load(**{"train.epochs": None}).train.max_steps == 5
    (line,) = lines(load, **{"train.max_steps": None})
    assert line.startswith("train.epochs and train.max_steps")


@pytest.mark.parametrize("text", ["9e-05", "9E-5", "9.0e-05", "0.00009", "1"])
def test_a_number_may_have_an_exponent_or_be_whole(replace, text):
    assert replace("learning_rate: 0.001", f"learning_rate: {text}").train.learning_rate == float(text)


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_text_that_cannot_be_read_is_a_configuration_error(replace, text):
    with pytest.raises(ConfigError):
        replace("seed: 0", text)


@pytest.mark.parametrize(
    "content", [b"", b"# nothing", b"- dataset", b"dataset", b"5", b"\xff\xfe\x00", b"a: 1\n---\nb: 1\n"]
)
def test_a_file_without_sections_is_refused(params, content):
    params.write_bytes(content)
    assert lines(config.load, params)


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(workspace, name):
    with pytest.raises(ConfigError, match=name):
        config.load(workspace / name)


@pytest.mark.parametrize(
    ("network", "pixels"), [("mnist_cnn", 28), ("inception_v4", 299), ("resnet_v2_200", 224)]
)
def test_the_size_of_the_network_can_be_asked_for(load, network, pixels):
    checked = load(**{"model.name": network, "preprocessing.image_size": "network"})
    assert checked.preprocessing.image_size == pixels


def test_imagenet_weights_of_another_network_than_slims_are_named(load):
    (line,) = lines(load, **{"model.name": "resnet_v1_50", "model.weights": "imagenet"})
    assert "model.name keras_resnet_v1_50, the network of Keras Applications" in line


@pytest.mark.parametrize(("name", "meant"), [
    ("MobileNetV22", "mobilenet_v2"), ("resnet", "resnet_v1_50"), ("VGG-16", "vgg_16"),
])  # fmt: skip
def test_an_unknown_choice_is_answered_with_the_nearest_before_the_list(load, name, meant):
    (line,) = lines(load, **{"model.name": name})
    first, _, known = line.partition("; known: ")
    assert f"got '{name}'; did you mean {meant}?" in first
    assert (len(first) < 200, known.count("mobilenet_v2,")) == (True, 1)


@pytest.mark.parametrize(
    ("given", "name"), [("MobileNetV2", "mobilenet_v2"), ("ResNet50", "keras_resnet_v1_50")]
)
def test_a_name_of_keras_applications_is_a_spelling_of_ours(load, given, name):
    assert load(**{"model.name": given, "preprocessing.image_size": "network"}).model.name == name


SHORT = {
    "train.lr": "train.learning_rate", "lr": "train.learning_rate", "evaluate.lr": "train.learning_rate",
    "train.bs": "train.batch_size", "train.batch": "train.batch_size", "train.batchsize": "train.batch_size",
    "train.epoch": "train.epochs", "num_epochs": "train.epochs", "train.num_epochs": "train.epochs",
    "train.steps": "train.max_steps", "train.image_size": "preprocessing.image_size",
    "dataset.img_size": "preprocessing.image_size", "train.wd": "train.weight_decay",
    "train.momentum": "train.optimizer_options", "train.optim": "train.optimizer",
    "train.learningrate": "train.learning_rate", "train.lerning_rate": "train.learning_rate",
    "train.stop_treshold": "train.stop_threshold", "trian.epochs": "train.epochs", "arch": "model.name",
}  # fmt: skip


@pytest.mark.parametrize(("given", "meant"), SHORT.items())
def test_a_short_or_usual_name_of_a_key_leads_to_the_key(given, meant):
    assert error_messages.nearest(given, KEYS) == meant
