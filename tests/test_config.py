"""Parameters: what is accepted, and what each mistake is told."""

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from perennial import config
from perennial.config import Config, mistakes
from perennial.config.sections import SeverityConfig
from perennial.errors import ConfigError
from perennial.validation.problems import JUDGED_CODES


def keys(section, above=""):
    """The full path of every key, as params.yaml spells it."""
    for name, field in section.model_fields.items():
        path = f"{above}{field.alias or name}"
        yield path
        if hasattr(field.annotation, "model_fields"):
            yield from keys(field.annotation, f"{path}.")


KEYS = list(keys(Config))
# parameter, refused value, what the message says besides the parameter
WRONG_VALUES = [
    ("dataset.name", "digit", "got 'digit' (the data set); did you mean digits?"),
    ("dataset.name", "mnst", "must be 'digits', 'mnist', 'cifar10', 'flowers', 'image_folder' or 'tfrecord'"),
    ("dataset.name", "zebra", "known: digits, mnist, cifar10, flowers, image_folder, tfrecord"),
    ("dataset.name", None, "got null"),
    ("dataset.base_url", "ftp://host/", "got 'ftp://host/' (http, https or file address"),
    ("dataset.base_url", 5, "must be a valid string, got 5"),
    ("dataset.digests", "record ", "did you mean record?"),
    ("dataset.validation_fraction", 0, "must be greater than 0, got 0"),
    ("dataset.validation_fraction", 1.0, "must be less than 1, got 1.0"),
    ("dataset.seed", -1, "must be greater than or equal to 0, got -1"),
    ("dataset.shards", 0, "must be auto or a whole number from 1 to 99999, got 0"),
    ("dataset.shards", 100_000, "must be auto or a whole number from 1 to 99999, got 100000"),
    ("dataset.shards", "all", "must be auto or a whole number from 1 to 99999, got 'all'"),
    ("dataset.shards", "4", "must be auto or a whole number from 1 to 99999, got '4'"),
    ("dataset.shards", 4.0, "must be auto or a whole number from 1 to 99999, got 4.0"),
    ("dataset.shards", True, "must be auto or a whole number from 1 to 99999, got True"),
    ("dataset.shards", None, "must be auto or a whole number from 1 to 99999, got null"),
    ("dataset.layout", "slimm", "did you mean slim?"),
    ("dataset.on_bad_image", "skpi", "did you mean skip?"),
    ("dataset.path", None, "must be a path"),
    ("validate.decode", True, "must be 'all', 'sample' or 'none', got True"),
    ("validate.decode", "al", "did you mean all?"),
    ("validate.near_duplicate_bits", 9, "must be less than or equal to 8, got 9"),
    ("validate.near_duplicate_bits", -1, "must be greater than or equal to 0, got -1"),
    ("validate.near_duplicate_bits", 1.0, "must be a valid integer, got 1.0"),
    ("validate.max_class_ratio", 0.5, "must be greater than or equal to 1, got 0.5"),
    ("validate.max_label_drift", 5, "must be less than or equal to 1, got 5"),
    ("validate.max_label_drift", 0, "must be greater than 0, got 0"),
    ("validate.max_brightness_drift", float("nan"), "must be a finite number, got nan"),
    ("validate.severity", "warn", "got 'warn'"),
    ("validate.severity.near_duplicate", "warning", "did you mean warn?"),
    ("validate.severity.drift_labels", False, "must be 'error', 'warn' or 'ignore', got False"),
    ("compute.engine", "rya", "did you mean ray?"),
    ("compute.processes", 0, "must be auto or a whole number from 1 to 99999, got 0"),
    ("compute.processes", "two", "must be auto or a whole number from 1 to 99999, got 'two'"),
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
    ("train.stop_threshold", 76, "must be in (0, 1], got 76"),
    ("train.stop_threshold", 99, "a share of accuracy, no percentage"),
    ("train.stop_threshold", 0, "must be greater than 0, got 0"),
    ("train.stop_threshold", float("nan"), "must be a finite number, got nan"),
    ("train.optimizer", "adm", "did you mean adam?"),
    ("train.learning_rate", 0, "must be greater than 0, got 0"),
    ("train.learning_rate", float("inf"), "must be a finite number, got inf"),
    ("train.learning_rate", "1e-3", "must be a valid number, got '1e-3'"),
    ("train.devices", "gpu", "got 'gpu' (auto, cpu:N, gpu:N"),
    ("train.devices", "gpu:0", "gpu:1 is one GPU"),
    ("train.deterministic", "yes", "must be a valid boolean, got 'yes'"),
    ("train.deterministic", 1, "must be a valid boolean, got 1"),
    ("evaluate.batch_size", 0, "must be greater than or equal to 1, got 0"),
    ("export.representative_examples", 0, "must be greater than or equal to 1, got 0"),
    ("gate.min_accuracy", 97, "must be less than or equal to 1, got 97"),
    ("gate.min_accuracy", -0.1, "must be greater than or equal to 0, got -0.1"),
    ("paths.raw", 5, "must be a path"),
    ("paths.raw", None, "must be a path"),
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


@pytest.mark.parametrize(("key", "value", "told"), WRONG_VALUES)
def test_a_wrong_value_is_told_with_key_rule_and_value(load, key, value, told):
    with pytest.raises(ConfigError) as refused:
        load(**{key: value})
    (line,) = str(refused.value).split(": ", 1)[1:]
    assert line.startswith(f"{key} ")
    assert told in line


def edit(params, change):
    """Changes what the file holds."""
    yaml = YAML()
    values = yaml.load(params)
    change(values)
    yaml.dump(values, params)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_must_be_there(params, key):
    *above, name = key.split(".")

    def remove(values):
        for section in above:
            values = values[section]
        del values[name]

    edit(params, remove)
    assert f"{key} is missing" in refusal(config.load, params)


@pytest.mark.parametrize("section", [key for key in KEYS if "." not in key])
@pytest.mark.parametrize("content", [None, {}, [], "x", 5])
def test_a_section_without_its_keys_is_refused(params, section, content):
    edit(params, lambda values: values.update({section: content}))
    assert f"{section}" in refusal(config.load, params)


def test_the_file_has_no_key_that_is_not_read(params):
    found = []

    def walk(values, above=""):
        for key, value in values.items():
            found.append(f"{above}{key}")
            if isinstance(value, dict):
                walk(value, f"{above}{key}.")

    walk(YAML(typ="safe").load(params))
    assert sorted(found) == sorted(KEYS)


def test_every_matter_of_judgement_has_a_severity():
    assert list(SeverityConfig.model_fields) == list(JUDGED_CODES)


def test_a_mistyped_key_is_told_with_the_nearest_one(replace):
    with pytest.raises(ConfigError, match=r"train\.epoch is not a key; did you mean train\.epochs\?"):
        replace("  epochs: 30", "  epoch: 30")


def found(params, change):
    """The lines of all mistakes after a change of what the file holds."""
    values = YAML(typ="safe").load(params)
    change(values)
    with pytest.raises(ValidationError) as refused:
        Config.model_validate(values)
    return mistakes.lines(Config, refused.value.errors())


def test_a_renamed_key_is_one_mistake(params):
    def rename(values):
        values["train"]["epoch"] = values["train"].pop("epochs")
        values["exports"] = values.pop("export")

    assert found(params, rename) == [
        "train.epoch is not a key; did you mean train.epochs?",
        "exports is not a key; did you mean export?",
    ]


def test_a_missing_key_is_told_beside_one_like_no_other(params):
    def change(values):
        values["gate"]["zzz"] = values["gate"].pop("min_accuracy")

    assert [line.split(";")[0].split(" (")[0] for line in found(params, change)] == [
        "gate.min_accuracy is missing",
        "gate.zzz is not a key",
    ]


@pytest.mark.parametrize(("value", "shown"), [(5, "5"), (None, "null"), ([1], "[1]")])
def test_what_is_no_section_is_told_so(params, value, shown):
    lines = found(params, lambda values: values.update(train=value))
    assert lines == [f"train must be a section (a mapping of keys), got {shown}"]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("loss_scale", "x", "train.loss_scale must be 'dynamic' or must be a valid number, got 'x' ("),
        ("loss_scale", -1, "train.loss_scale must be 'dynamic' or must be greater than 0, got -1 ("),
        ("class_weights", [1, -1], "train.class_weights[1] must be greater than 0, got -1 ("),
        ("trainable", ["a", 5], "train.trainable[1] must be a valid string, got 5 ("),
    ],
)
def test_a_value_of_none_of_several_kinds_is_one_mistake(params, key, value, told):
    (line,) = found(params, lambda values: values["train"].update({key: value}))
    assert line.startswith(told)


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
    assert "must hold sections (dataset, validate, compute, preprocessing, model," in refusal(
        config.load, params
    )


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
        ({"paths.baseline": "src/baseline.json"}, "paths.baseline must not lie in src"),
        ({"dataset.path": "data/raw/own"}, "dataset.path must not lie in paths.raw or hold it"),
        ({"dataset.path": "data"}, "dataset.path must not lie in paths."),
    ],
)
def test_a_path_that_would_replace_another_is_refused(load, change, told):
    with pytest.raises(ConfigError, match=told):
        load(**change)


@pytest.mark.parametrize("url", ["file://tmp/x", "http://h/x?token=1", "https://h/#x"])
def test_an_address_that_would_be_misread_is_refused(load, url):
    with pytest.raises(ConfigError, match=r"dataset\.base_url must"):
        load(**{"dataset.base_url": url})


@pytest.mark.parametrize("value", ["auto", 1, 7, 99_999])
@pytest.mark.parametrize("key", ["dataset.shards", "compute.processes"])
def test_a_number_or_auto_is_accepted(load, key, value):
    section, name = key.split(".")
    assert getattr(getattr(load(**{key: value}), section), name) == value


def test_the_section_validate_is_not_the_method_of_that_name(load):
    assert load(**{"validate.decode": "sample"}).validation.decode == "sample"


@pytest.mark.parametrize("path", ["data/../src", "src/../params.yaml", "..", "own"])
def test_no_path_leads_to_the_project_itself_by_another_name(load, path):
    with pytest.raises(ConfigError, match=r"paths\.records"):
        load(**{"paths.records": path})


def test_own_data_are_kept_apart_from_outputs_by_whatever_name(load, workspace):
    with pytest.raises(ConfigError, match=r"dataset\.path must not lie in paths\.raw"):
        load(**{"dataset.path": str(workspace / "data" / "raw")})


def test_a_home_folder_must_be_written_out(load):
    with pytest.raises(ConfigError, match="must be written out"):
        load(**{"dataset.path": "~/photos"})
