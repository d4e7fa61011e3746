"""The keys dataset.table and dataset.task: what they may hold, what they exclude, and how that is named."""

import pytest

from perennial.base.config import check, read
from perennial.base.errors import ConfigError
from perennial.base.params import options
from perennial.base.params.edit_params import set_values

SEVERAL = {
    "dataset.task": "multilabel", "dataset.name": "tfrecord", "train.stop_metric": "map",
    "gate.min_accuracy": None,
}  # fmt: skip
TABLE = {"path": "labels.csv", "file": "image", "label": "species", "split": "phase"}
GROUPED = {"dataset.name": "image_folder", "dataset.table": {**TABLE, "group": "patient"}}


def with_table(value: object, text: str = "") -> str:
    values = {"dataset.name": "image_folder", "dataset.table": value}
    return set_values(text or options.defaults(), values).text


def test_a_table_is_written_read_replaced_and_removed() -> None:
    text = with_table(TABLE)
    table = check(read(text)).dataset.table
    assert table is not None
    assert table.block == TABLE
    other = with_table({"path": {"train": "a.csv", "test": "b.csv"}, "file": 1, "label": 2}, text)
    assert '"path": {"train": "a.csv", "test": "b.csv"}' in other
    assert with_table(None, other) == with_table(None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dataset.name": "digits"}, r"dataset\.task multilabel is for dataset\.name image_folder or tfrecord"),
        ({"dataset.table": None}, r"multilabel needs dataset\.table with a column of labels: class folders"),
        ({"dataset.table": {**TABLE, "label": None}}, "class folders give one label an image"),
        ({"dataset.task": "multiclass"}, r"dataset\.table\.separator is for dataset\.task multilabel"),
        ({"dataset.table": {**TABLE, "label": ["a", "b"], "separator": "|"}}, "splits the labels of one col"),
        ({"dataset.layout": "slim"}, r"dataset\.layout slim holds one label an image"),
    ],
)
def test_what_cannot_have_several_labels_is_refused_by_name(values: dict[str, object], message: str) -> None:
    several = SEVERAL | {"dataset.name": "image_folder"}
    table = {"dataset.table": {**TABLE, "separator": "|"}}
    assert check(read(set_values(options.defaults(), several | table).text)).dataset.task == "multilabel"
    others = {"dataset.table": None} if values.get("dataset.name") == "digits" else {}
    with pytest.raises(ConfigError, match=message):
        set_values(options.defaults(), several | table | values | others)


def test_keys_and_values_of_splits_are_text_as_in_the_table() -> None:
    text = with_table(TABLE).replace("split: phase", 'split: {is_test: {1: test, "0": train}}')
    table = check(read(text)).dataset.table
    assert table is not None
    assert table.split == {"is_test": {"1": "test", "0": "train"}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("labels.csv", "must be null or a mapping with path, file, label"),
        ({**TABLE, "files": "x"}, "has no key files; its keys are path, file, label"),
        ({**TABLE, "file": None}, "needs the column of files"),
        ({**TABLE, "file": 1}, "names all columns by name, or all by number"),
        ({**TABLE, "split": "species"}, "uses a column twice"),
        ({**TABLE, "label": ["cat"]}, "two or more columns of 0 and 1"),
        ({**TABLE, "label": None, "split": None}, "gives neither labels nor splits"),
        ({**TABLE, "path": {"train": "a", "test": "b"}}, "has a table for each split, so split must be null"),
        ({**TABLE, "path": {"test": "b"}, "split": None}, "needs a table of the split train"),
        ({**TABLE, "label": 2.5}, "label: must be a valid"),
    ],
)
def test_a_wrong_table_is_refused_with_the_rule(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"dataset.table .*{message}"):
        with_table(value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            SEVERAL | {"train.stop_metric": "accuracy"},
            "stop_metric must be map or loss for dataset.task multilabel",
        ),
        (SEVERAL | {"train.class_weights": "balanced"}, "must be null .* use train.positive_weights"),
        (SEVERAL | {"evaluate.calibrate": True}, "evaluate.calibrate must be false .* use evaluate.threshold"),
        (SEVERAL | {"evaluate.max_error": 0.1}, "evaluate.max_error must be null .* use evaluate.threshold"),
        (
            SEVERAL | {"gate.traffic": "decides"},
            "gate.traffic must be null for dataset.task multilabel, .*; use gate.max_slice_drop",
        ),
        ({"dataset.table": TABLE}, r"dataset\.table is for dataset\.name image_folder, got digits"),
        (GROUPED | {"dataset.layout": "slim"}, r"dataset\.layout slim knows no groups"),
        ({"train.stop_metric": "map"}, "stop_metric must be accuracy or loss or recall_at_5 .* multiclass"),
        ({"train.positive_weights": "balanced"}, "must be null .* multiclass, .* use train.class_weights"),
        ({"evaluate.threshold": 0.5}, "must be 'f1' for dataset.task multiclass, .*; use evaluate.max_error"),
        *(
            (
                {"evaluate.threshold": rule},
                r"evaluate.threshold must be f1, a number from 0 to 1, or \{precision: P\}",
            )
            for rule in (1.5, "best", {"recall": 0.5}, {"precision": 2}, {"precision": "0.9"}, True)
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_name(values, message):
    with pytest.raises(ConfigError, match=message):
        set_values(options.defaults(), values)


@pytest.mark.parametrize("rule", ["f1", 0.3, 1, {"precision": 0.9}])
def test_a_threshold_is_a_rule_or_a_number(rule):
    text = set_values(options.defaults(), SEVERAL | {"evaluate.threshold": rule}).text
    found = check(read(text)).model_dump()["evaluate"]["threshold"]
    assert found == rule
