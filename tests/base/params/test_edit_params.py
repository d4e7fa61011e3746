"""`perennial config --upgrade` and `--set`: keys come back or get values, and everything else stays."""

import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from perennial.base import config
from perennial.base.config.release import GateConfig
from perennial.base.errors import ConfigError
from perennial.base.params import edit_params, options
from perennial.cli import app

GROUPS = 7  # of keys that are missing together


def read(text):
    return YAML(typ="safe").load(text)


def without(text, *keys):
    """The default file without the lines of some keys."""
    return "".join(line for line in text.splitlines(True) if line.split(":")[0].strip() not in keys)


@pytest.fixture
def run(workspace):
    def call(*arguments):
        result = CliRunner().invoke(app, ["config", *arguments])
        return result.exit_code, result.stdout

    return call


@pytest.mark.fast_rows("0", "3")
@pytest.mark.parametrize("group", range(GROUPS))
def test_missing_keys_come_back_at_their_places(workspace, group):
    shortened, missing = options.defaults(), 0
    for key in [each.key for each in options.options()][group::GROUPS]:
        path = tuple(key.split("."))
        start = shortened.find(f"\n{path[0]}:")
        block = options.block(path, 2 * (len(path) - 1))
        rest = shortened[:start] + shortened[start:].replace(block, "", 1)
        if rest == shortened:  # in a line with others
            rest = edit_params.remove(shortened, [key], shortened).text
        if rest != shortened and isinstance(YAML(typ="safe").load(rest).get(path[0]), dict):  # not the only key
            shortened, missing = rest, missing + 1
    change = edit_params.upgrade(shortened)
    assert len(change.added) == missing
    assert read(change.text) == options.values(())


@pytest.mark.fast_rows("<lambda>-added0", "<lambda>-added3", "<lambda>-added6")
@pytest.mark.parametrize(
    ("change", "added"),
    [
        (lambda text: text, ()),
        (lambda text: text.rstrip("\n").replace("work: .work", "work: w"), ()),
        (lambda text: without(text, "clip_norm").rstrip("\n"), ("train.clip_norm",)),
        (lambda text: text[: text.index("\npaths:")], ("paths",)),
        (lambda text: text.replace("card: {licence: null, intended_use: null}",
                                   "card:\n    intended_use: |\n      a\n      b"), ("export.card.licence",)),
        (lambda text: text.replace("licence: null, ", ""), ("export.card.licence",)),
        (lambda text: without(text, "clip_norm").replace("loss_weight: 0.4", "loss_weight:   4e-01"),
         ("train.clip_norm",)),
        (lambda text: re.sub(r"(?m)^gate: .*\n(  .*\n)+", "gate: {} # flow\n", text),
         tuple(f"gate.{name}" for name in GateConfig.model_fields)),
        (lambda text: re.sub(r"publish: .*", "publish: {}", without(text, "url")),
         ("dataset.url", "publish.url", "publish.dvc_remote")),
    ],
)  # fmt: skip
def test_only_lines_are_added(workspace, change, added):
    text = change(options.defaults())
    done = edit_params.upgrade(text)
    assert done.added == added
    assert done.problems() == []
    assert edit_params.upgrade(done.text).text == done.text


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_the_command_reports_and_writes_what_it_added(run, line_end):
    text = without(options.defaults(), "xla").replace("\n", line_end)
    Path("params.yaml").write_bytes(text.encode())
    code, stdout = run("--upgrade", "--json")
    done = json.loads(stdout)
    assert code == 0
    assert {"added": ["train.xla"], "problems": []}.items() <= done.items()
    assert Path("params.yaml").read_bytes() == options.defaults().replace("\n", line_end).encode()


def test_an_unknown_key_is_kept_and_reported(run):
    text = without(options.defaults(), "xla").replace("train:", "train:\n  mine: 1", 1)
    Path("params.yaml").write_text(text)
    code, stdout = run("--upgrade", "--json")
    assert code == 2
    assert json.loads(stdout)["problems"][0].startswith("train.mine ")
    assert read(Path("params.yaml").read_text())["train"]["mine"] == 1


@pytest.mark.parametrize("text", ["[", "- a", "train: 5\n"])
def test_a_file_that_cannot_be_upgraded_stays(run, text):
    Path("params.yaml").write_text(text)
    code, _ = run("--upgrade")
    assert code == 2
    assert text in Path("params.yaml").read_text()


@pytest.mark.parametrize(("name", "kept"), [("momentum", {"momentum": 0.8}), ("components.nets:mine", {})])
def test_settings_of_an_earlier_versions_optimizers_are_moved(workspace, name, kept):
    before = without(options.defaults(), "optimizer_options").replace(
        "  optimizer: adam\n",
        f"  optimizer: {name}\n  optimizers: # all\n    adam: {{beta_1: 0.5}}\n"
        "    momentum:\n      momentum: 0.8\n      nesterov: false\n",
    )
    done = edit_params.upgrade(before)
    assert (done.removed, done.added) == (("train.optimizers",), ("train.optimizer_options",))
    assert read(done.text)["train"]["optimizer_options"] == kept
    assert done.problems() == []


def test_a_key_that_is_gone_is_named_with_what_to_do_and_upgrade_removes_it(workspace):
    defaults = options.defaults()
    old = defaults.replace("false, erasing: 0.0", "false, operations: 2, magnitude: 9.0, erasing: 0.0")
    gone = ("train.augmentation.operations", "train.augmentation.magnitude")
    problems = edit_params.Change(old).problems()
    assert [problem.partition(" is gone: RandAugment is not")[0] for problem in problems] == list(gone)
    assert all(each.endswith("; `perennial config --upgrade` removes the key") for each in problems)
    assert edit_params.upgrade(old) == edit_params.Change(defaults, removed=gone)


def test_the_file_behind_a_link_is_upgraded(run):
    Path("params.yaml").rename("real.yaml")
    Path("params.yaml").symlink_to("real.yaml")
    Path("real.yaml").write_text(without(options.defaults(), "xla"))
    assert run("--upgrade")[0] == 0
    assert Path("params.yaml").is_symlink()
    config.load(Path("real.yaml"))


def test_the_defaults_and_the_reference_are_printed(run):
    assert run("--defaults") == (0, options.defaults())
    assert run("--options") == (0, options.markdown())
    assert json.loads(run("--options", "--json")[1])[0]["key"] == "dataset.name"


@pytest.mark.parametrize(
    ("text", "keys", "expected"),
    [
        ("a:\n  # About b.\n  b: 1 # one\n  c: 2\n", ["a.b"], "a:\n  c: 2\n"),
        ("a:\n  # Mine.\n  # About b.\n  b: 1\n  c: 2\n", ["a.b"], "a:\n  # Mine.\n  c: 2\n"),
        ("a:\n  # Mine.\n  b: 1\n  c: 2\n", ["a.b"], "a:\n  # Mine.\n  c: 2\n"),
        ("a:\n  c: 2\n  # About b.\n  b:\n    - 1\n    - 2\nd: 1\n", ["a.b"], "a:\n  c: 2\nd: 1\n"),
        ("a:\n  c: 2\n  b: |\n    text\nd: 1\n", ["a.b"], "a:\n  c: 2\nd: 1\n"),
        ("a:\n  b: 1\nd: 1\n", ["a"], "d: 1\n"),
        ("a:\n  c: 2\n", ["a.b", "x.y"], "a:\n  c: 2\n"),
    ],
)
def test_a_key_is_removed_with_the_comment_of_the_template(text: str, keys: list[str], expected: str) -> None:
    like = "a:\n  # About b.\n  b: 1\n  c: 2\nd: 1\n"
    assert edit_params.remove(text, keys, like).text == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: {b: 1, c: 2} # x\nd: 1\n", "a: {c: 2} # x\nd: 1\n"),
        ("a: {c: 2, b: [1, 2]}\n", "a: {c: 2}\n"),
        ("a: {c: 2,\n  b: 1, e: 3}\n", "a: {c: 2,\n  e: 3}\n"),
        ("a: {b: 1}\n", "a: {}\n"),
    ],
)
def test_a_key_in_a_line_with_others_is_removed(text: str, expected: str) -> None:
    assert edit_params.remove(text, ["a.b"], "a:\n  b: 1\n").text == expected


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
def test_the_command_sets_values(workspace, arguments, code, output):
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
