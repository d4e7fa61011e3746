"""Parameters: what is accepted, and what each mistake is told."""

from typing import get_args

import pytest
from pydantic import ValidationError

from perennial import config
from perennial.config import Config, DatasetConfig
from perennial.datasets import DATASETS
from perennial.errors import ConfigError

KEYS = [
    f"{section}.{key}"
    for section, field in Config.model_fields.items()
    for key in field.annotation.model_fields
]

# parameter, refused value, what the message says besides the parameter
WRONG_VALUES = [
    ("dataset.name", "digit", "must be 'digits' or 'mnist', got 'digit' (the data set); did you mean digits?"),
    ("dataset.name", "zebra", "got 'zebra' (the data set); known: digits, mnist"),
    ("dataset.name", None, "got null"),
    ("dataset.base_url", "ftp://host/", "got 'ftp://host/' (http, https or file address"),
    ("dataset.base_url", 5, "must be a valid string, got 5"),
    ("dataset.digests", "record ", "did you mean record?"),
    ("dataset.validation_fraction", 0, "must be greater than 0, got 0"),
    ("dataset.validation_fraction", 1.0, "must be less than 1, got 1.0"),
    ("dataset.seed", -1, "must be greater than or equal to 0, got -1"),
    ("dataset.shards", 0, "must be greater than or equal to 1, got 0"),
    ("dataset.shards", 100_000, "must be less than or equal to 99999, got 100000"),
    ("preprocessing.name", "rescal", "did you mean rescale?"),
    ("preprocessing.image_size", 0, "must be greater than or equal to 1, got 0"),
    ("preprocessing.image_size", 5000, "must be less than or equal to 4096, got 5000"),
    ("model.name", "mnist_cn", "did you mean mnist_cnn?"),
    ("train.epochs", 0, "must be greater than or equal to 1, got 0"),
    ("train.epochs", 2.0, "must be a valid integer, got 2.0"),
    ("train.batch_size", "64", "must be a valid integer, got '64'"),
    ("train.batch_size", True, "must be a valid integer, got True"),
    ("train.batch_size", None, "must be a valid integer, got null"),
    ("train.epochs_between_evals", 0, "must be greater than or equal to 1, got 0"),
    ("train.stop_threshold", 76, "must be less than or equal to 1, got 76"),
    ("train.stop_threshold", 99, "a fraction and not a percentage"),
    ("train.stop_threshold", 0, "must be greater than 0, got 0"),
    ("train.stop_threshold", float("nan"), "must be a finite number, got nan"),
    ("train.optimizer", "adm", "did you mean adam?"),
    ("train.learning_rate", 0, "must be greater than 0, got 0"),
    ("train.learning_rate", float("inf"), "must be a finite number, got inf"),
    ("train.learning_rate", "1e-3", "must be a valid number, got '1e-3'"),
    ("train.devices", "gpu", "got 'gpu' (auto, cpu:N or gpu:N)"),
    ("train.devices", "gpu:0", "got 'gpu:0' (auto, cpu:N or gpu:N)"),
    ("train.deterministic", "yes", "must be a valid boolean, got 'yes'"),
    ("train.deterministic", 1, "must be a valid boolean, got 1"),
    ("evaluate.batch_size", 0, "must be greater than or equal to 1, got 0"),
    ("export.parity_examples", 0, "must be greater than or equal to 1, got 0"),
    ("gate.min_accuracy", 97, "must be less than or equal to 1, got 97"),
    ("gate.min_accuracy", -0.1, "must be greater than or equal to 0, got -0.1"),
    ("paths.raw", 5, "is not a valid path"),
    ("paths.raw", None, "is not a valid path"),
]
# what is written in place of `seed: 0 # chosen`, the first parameter that is replaced
UNREADABLE = {
    "a list that is not closed": "seed: [",
    "a tab as indentation": "\tseed: 0",
    "an unknown tag": "seed: !secret 0",
    "a Python object": "seed: !!python/object:os.system x",
    "a control character": "seed: \x07",
    "a number that is none": "seed: !!int abc",
    "a date that is none": "seed: 2024-13-45",
    "an integer beyond Python's limit": "seed: 1" + "0" * 5000,
    "lists nested too deep": "seed: " + "[" * 3000,
}


@pytest.fixture
def params(workspace):
    return workspace / "params.yaml"


@pytest.fixture
def replace(params):
    """Loads the parameters after changing text in their file."""

    def change(old, new):
        text = params.read_text()
        assert old in text
        params.write_text(text.replace(old, new, 1))
        return config.load(params)

    return change


def refusal(load, file):
    with pytest.raises(ConfigError) as refused:
        load(file)
    return str(refused.value)


def test_the_projects_own_parameters_are_accepted(params):
    assert config.load(params).dataset.name == "digits"


def test_the_choice_of_data_set_is_the_dict_of_data_sets():
    assert get_args(DatasetConfig.model_fields["name"].annotation) == tuple(DATASETS)


@pytest.mark.parametrize(("key", "value", "told"), WRONG_VALUES)
def test_a_wrong_value_is_told_with_key_rule_and_value(load, key, value, told):
    with pytest.raises(ConfigError) as refused:
        load(**{key: value})
    (line,) = str(refused.value).split(": ", 1)[1:]
    assert line.startswith(f"{key} ")
    assert told in line


@pytest.mark.parametrize("key", KEYS)
def test_every_key_must_be_there(workspace, params, key):
    section, name = key.split(".")
    lines = params.read_text().splitlines()
    start = lines.index(f"{section}:")
    position = next(i for i in range(start, len(lines)) if lines[i].startswith(f"  {name}:"))
    params.write_text("\n".join(lines[:position] + lines[position + 1 :]))
    told = refusal(config.load, params)
    assert (f"{key} is missing" in told) or (f"{section} must be" in told and "got null" in told)


@pytest.mark.parametrize("section", Config.model_fields)
def test_a_section_without_content_is_refused(params, section):
    lines = params.read_text().splitlines()
    start = lines.index(f"{section}:")
    stop = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith("  ")), len(lines))
    params.write_text("\n".join(lines[: start + 1] + lines[stop:]))
    assert f"{section} must be" in refusal(config.load, params)


def test_a_mistyped_key_is_told_with_the_nearest_one(replace):
    with pytest.raises(ConfigError, match=r"train\.epoch is not a key; did you mean train\.epochs\?"):
        replace("  epochs: 30", "  epoch: 30")


def test_a_key_like_no_other_is_told_with_all_that_are_known(replace):
    with pytest.raises(ConfigError, match=r"gate\.zzz is not a key; known: gate\.min_accuracy$"):
        replace("gate:", "gate:\n  zzz: 1")


def test_a_mistyped_section_is_told_with_the_nearest_one(replace):
    with pytest.raises(ConfigError, match=r"trian is not a key; did you mean train\?"):
        replace("train:", "trian:")


def test_a_key_that_is_no_text_is_refused(replace):
    with pytest.raises(ConfigError, match=r"train\.5 "):
        replace("  epochs: 30", "  epochs: 30\n  5: 1")


def test_every_mistake_gets_a_line(load):
    with pytest.raises(ConfigError) as refused:
        load(**{"dataset.name": "digit", "train.batch_size": 0, "gate.min_accuracy": 2})
    assert [line.split()[1] for line in str(refused.value).splitlines()] == [
        "dataset.name",
        "train.batch_size",
        "gate.min_accuracy",
    ]


def test_every_line_names_the_file(load, params):
    with pytest.raises(ConfigError) as refused:
        load(**{"dataset.name": "digit", "train.batch_size": 0})
    assert all(line.startswith(f"{params}: ") for line in str(refused.value).splitlines())


def test_epochs_and_steps_together_are_refused(load):
    told = "train.epochs and train.max_steps: exactly one must be set, got 30 and 5"
    with pytest.raises(ConfigError, match=told):
        load(**{"train.max_steps": 5})


def test_neither_epochs_nor_steps_is_refused(load):
    with pytest.raises(ConfigError, match="exactly one must be set, got null and null"):
        load(**{"train.epochs": None})


def test_steps_instead_of_epochs_are_accepted(load):
    assert load(**{"train.epochs": None, "train.max_steps": 5}).train.max_steps == 5


def test_a_duplicate_key_is_refused(replace):
    with pytest.raises(ConfigError, match='duplicate key "epochs"'):
        replace("  epochs: 30", "  epochs: 30\n  epochs: 31")


def test_a_duplicate_section_is_refused(replace):
    with pytest.raises(ConfigError, match='duplicate key "gate"'):
        replace("gate:", "gate: {}\ngate:")


@pytest.mark.parametrize("text", ["9e-05", "9E-5", "9.0e-05", "0.00009"])
def test_a_number_with_an_exponent_is_a_number(replace, text):
    assert replace("learning_rate: 0.001", f"learning_rate: {text}").train.learning_rate == 9e-05


def test_yes_is_no_boolean(replace):
    with pytest.raises(ConfigError, match=r"train\.deterministic must be a valid boolean, got 'yes'"):
        replace("deterministic: true", "deterministic: yes")


def test_a_whole_number_is_a_learning_rate(load):
    assert load(**{"train.learning_rate": 1}).train.learning_rate == 1


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_text_that_cannot_be_read_is_a_configuration_error(replace, text):
    with pytest.raises(ConfigError):
        replace("seed: 0", text)


@pytest.mark.parametrize("content", [b"", b"# nothing", b"- dataset", b"dataset", b"5"])
def test_a_file_without_sections_is_refused(params, content):
    params.write_bytes(content)
    assert "must hold sections (dataset, preprocessing, model," in refusal(config.load, params)


def test_a_second_document_is_refused(params):
    params.write_text(params.read_text() + "\n---\nmore: 1\n")
    assert "expected a single document" in refusal(config.load, params)


def test_a_file_that_is_not_there_is_named(workspace):
    assert "absent.yaml cannot be read" in refusal(config.load, workspace / "absent.yaml")


def test_a_folder_in_place_of_the_file_is_refused(workspace):
    assert "cannot be read" in refusal(config.load, workspace)


def test_a_file_in_another_encoding_is_refused(params):
    params.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refusal(config.load, params)


@pytest.mark.parametrize("address", ["http://", "http://[::1/mnist/", "https:///mnist/"])
def test_an_address_without_a_host_is_refused(load, address):
    with pytest.raises(ConfigError, match=r"dataset\.base_url"):
        load(**{"dataset.base_url": address})


@pytest.mark.parametrize("path", ["", "/", "..", "."])
def test_a_path_that_names_nothing_to_write_is_refused(load, path):
    with pytest.raises(ConfigError, match=r"paths\.raw"):
        load(**{"paths.raw": path})


def test_a_parameter_cannot_be_changed(load):
    checked = load()
    with pytest.raises(ValidationError, match="frozen"):
        checked.train.epochs = 1


def test_a_section_cannot_be_exchanged(load):
    checked = load()
    with pytest.raises(ValidationError, match="frozen"):
        checked.train = checked.train


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"paths.raw": "src"}, "paths.raw must not lie in src"),
        ({"paths.export": "models"}, "paths.model must not lie in paths.export"),
        ({"paths.index": "data/raw"}, "must not lie in paths."),
    ],
)
def test_a_path_that_would_replace_another_is_refused(load, change, told):
    with pytest.raises(ConfigError, match=told):
        load(**change)


@pytest.mark.parametrize("url", ["file://tmp/x", "http://h/x?token=1", "https://h/#x"])
def test_an_address_that_would_be_misread_is_refused(load, url):
    with pytest.raises(ConfigError, match=r"dataset\.base_url must"):
        load(**{"dataset.base_url": url})
