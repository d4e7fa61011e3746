"""`perennial config --set`: values in params.yaml, all else as it was."""

import pytest
from typer.testing import CliRunner

from perennial.base import config
from perennial.base.errors import ConfigError
from perennial.base.params import edit_params
from perennial.cli import app

RECORD = "record: {artifact: classifier, remote: origin, branch: fast-forward, git_name: "


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("train.epochs", 2, "  epochs: 2 # passes"),
        ("train.learning_rate", 1e-5, "  learning_rate: 1.0e-05"),
        ("train.stop_threshold", None, "  stop_threshold: null"),
        ("train.deterministic", False, "  deterministic: false"),
        ("export.formats", ["onnx"], '  formats: ["onnx"]'),
        ("train.optimizer_options", {"beta_1": 0.8}, "  optimizer_options: {beta_1: 0.8} # settings"),
        ("record.git_name", "Zoë", RECORD + '"Zoë"'),
        ("record.git_name", "null", RECORD + '"null"'),
        ("record.git_name", 'a: "b" # 😀', RECORD + '"a: \\"b\\" # 😀"'),
    ],
)
def test_a_value_is_set_and_every_other_line_and_comment_stays(workspace, key, value, line):
    file = workspace / "params.yaml"
    before = file.read_text(encoding="utf-8").splitlines()
    done = edit_params.change_file(file, values={key: value})
    after = file.read_text(encoding="utf-8").splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert [each.startswith(line) for each in changed] == [True] * bool(done.set)
    section, name = key.split(".")
    assert getattr(getattr(config.load(file), section), name) == value
    assert edit_params.change_file(file, values={key: value}).set == ()


def test_keys_that_need_each_other_are_set_together(workspace):
    file = workspace / "params.yaml"
    edit_params.change_file(file, values={"train.epochs": None, "train.max_steps": 9})
    assert config.load(file).train.max_steps == 9


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        ({"train.epoch": 3}, ["train.epoch is not a key; did you mean train.epochs?"]),
        ({"train.epochs": "many", "a.b": 1}, ["must be a valid integer, got 'many'", "a is not a key"]),
        ({"train": {"epochs": 3}}, ["train is a section; set its keys, such as train.epochs"]),
        ({"train.epochs.x": 3}, ["train.epochs.x is not a key"]),
        ({"dataset.url": "s3://me:secret@bucket/x"}, ["dataset.url must not hold a user name"]),
    ],
)
def test_what_would_not_be_valid_is_refused_at_once_and_changes_nothing(workspace, values, messages):
    file = workspace / "params.yaml"
    before = file.read_bytes()
    with pytest.raises(ConfigError) as refused:
        edit_params.change_file(file, values=values)
    assert [message in str(refused.value) for message in messages] == [True] * len(messages)
    assert ("secret" in str(refused.value), file.read_bytes()) == (False, before)


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (
            ["--set", "train.epochs=2", "--set", "gate.min_gain=1e-3"],
            0,
            "set train.epochs\nparams.yaml: set gate",
        ),
        (["--set", "train.epochs"], 2, "--set takes KEY=VALUE"),
        (["--set", "train.epochs=[1"], 2, "--set train.epochs: the value is not valid YAML"),
    ],
)
def test_the_command(workspace, arguments, code, output):
    done = CliRunner().invoke(app, ["config", *arguments])
    assert (done.exit_code, output in done.output) == (code, True)


def test_a_key_that_the_file_lacks_is_refused_with_how_to_add_it(workspace):
    file = workspace / "params.yaml"
    text = file.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines(keepends=True) if line.startswith("  epochs: "))
    file.write_text(text.replace(line, ""), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"train\.epochs is missing; `perennial config --upgrade` adds it"):
        edit_params.change_file(file, values={"train.epochs": 2})
    assert edit_params.change_file(file, add_missing=True, values={"train.epochs": 2}).added == (
        "train.epochs",
    )
