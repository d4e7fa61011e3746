"""Publishing: what is refused, and where the rest goes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.exports import content, decide, write_export

from perennial import files, published
from perennial.errors import ConfigError, DataError, QualityError
from perennial.models import saved
from perennial.runtime import locks
from perennial.stages import export
from perennial.stages.publish import publish


@pytest.fixture
def config(load):
    """Parameters with a promoted export and a folder to publish to."""
    config = load(**{"publish.url": "served"})
    write_export(config)
    return config


def test_the_export_becomes_the_current_version(config, workspace):
    done = publish(config)
    assert (done.version, str(done.path)) == (1, "served/1")
    assert content(workspace / "served" / "current") == content(config.paths.export)


def test_the_command_line_names_another_folder(config, workspace):
    publish(config, to=str(workspace / "elsewhere"))
    assert (workspace / "elsewhere" / "current").exists()
    assert not (workspace / "served").exists()


REFUSED = {
    "a rejected model": (lambda config: decide(config, promote=False), [], 4),
    "a decision about another model": (lambda config: decide(config, model="other"), [], 4),
    "no export": (lambda config: shutil.rmtree(config.paths.export), [], 3),
    "an address": (None, ["--to", "s3://bucket/models"], 2),
    "a version without --rollback": (None, ["1"], 2),
    "nothing to go back to": (None, ["--rollback"], 3),
}


@pytest.mark.parametrize(("harm", "options", "code"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_has_its_exit_code_and_one_line(config, workspace, capfd, harm, options, code):
    if harm:
        harm(config)
    done = subprocess.run([sys.executable, "-m", "perennial", "publish", *options], check=False)
    told = capfd.readouterr().err
    assert (done.returncode, told.count("\n"), told[:19]) == (code, 1, "perennial publish: ")
    assert not (workspace / "served").exists()


def test_the_command_tells_the_version_and_its_place(config, capfd):
    for expected in (
        {"version": 1, "path": "served/1", "moved": True},
        {"version": 1, "path": "served/1", "moved": False},
    ):
        subprocess.run([sys.executable, "-m", "perennial", "publish", "--json"], check=True)
        assert json.loads(capfd.readouterr().out) == expected


def test_description_and_list_lie_where_an_export_has_them():
    assert (saved.EXPORTED, Path(export.LIST)) == (published.MODEL, published.LIST)


def flip(file):
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])


LABELS, WEIGHTS = Path("assets", "labels.txt"), Path("variables", "variables.index")
HARMS = {
    "a byte of the weights": (lambda export: flip(export / WEIGHTS), f"{WEIGHTS} was changed"),
    "labels in another order": (
        lambda export: (export / LABELS).write_text("0:dog\n"),
        f"{LABELS} was changed",
    ),
    "no labels": (lambda export: (export / LABELS).unlink(), f"{LABELS} is missing"),
    "no graph": (lambda export: (export / "saved_model.pb").unlink(), "saved_model.pb is missing"),
    "no description": (lambda export: (export / published.MODEL).unlink(), "model.json is missing"),
    "another description": (
        lambda export: files.write_json(export / published.MODEL, {}),
        "model.json was changed",
    ),
    "a file of somebody": (lambda export: (export / "assets" / "mine").touch(), "assets/mine was added"),
    "a list of other files": (lambda export: files.write_json(export / published.LIST, {}), "was added"),
    "a damaged list": (lambda export: (export / published.LIST).write_text("{"), "files.json cannot be read"),
    "an earlier version's": (
        lambda export: (export / published.LIST).unlink(),
        "files.json does not exist: models/export is damaged or of an earlier version",
    ),
}


@pytest.mark.parametrize(("harm", "told"), HARMS.values(), ids=HARMS)
def test_an_export_that_is_not_what_was_compared_is_not_published(config, workspace, harm, told):
    publish(config)
    before = content(workspace / "served" / "current")
    write_export(config, "other")
    harm(config.paths.export)
    advice = r"nothing was published, current stays; `dvc repro export` makes or restores the export"
    with pytest.raises(DataError, match=f"{told}.*; {advice}"):
        publish(config)
    assert content(workspace / "served" / "current") == before


def test_a_damaged_export_is_told_of_though_what_it_was_is_current(config):
    publish(config)
    flip(config.paths.export / WEIGHTS)
    with pytest.raises(DataError, match=f"{WEIGHTS} was changed"):
        publish(config)


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ({"promote": False}, "rejects the model: test accuracy 0.5 is below 0.97"),
        ({"model": "other"}, "is about the model other and the data d, but models/export holds m of d"),
        ({"data": "other"}, "is about the model m and the data other"),
    ],
)
def test_only_what_was_decided_to_be_promoted_is_published(config, workspace, decision, told):
    decide(config, **decision)
    with pytest.raises(QualityError, match=rf"{told}.*nothing was published"):
        publish(config)
    assert not (workspace / "served").exists()


@pytest.mark.parametrize(("path", "makes"), [("export", "export"), ("decision", "gate")])
def test_what_is_missing_is_told_with_what_makes_it(config, workspace, path, makes):
    getattr(config.paths, path).rename(workspace / "away")
    with pytest.raises(DataError, match=rf"does not exist; `dvc repro {makes}` makes it"):
        publish(config)


def test_a_decision_without_a_model_is_told_with_what_makes_it(config, workspace):
    files.write_json(config.paths.decision, {"promote": True})
    told = "decision.json has no candidate; nothing was published; `dvc repro gate` makes or restores it"
    with pytest.raises(DataError, match=told):
        publish(config)
    assert not (workspace / "served").exists()


def test_no_folder_to_publish_to_is_a_mistake(load):
    with pytest.raises(ConfigError, match=r"name one with --to or publish\.url"):
        publish(load())


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("s3://bucket/models", "must be a folder; addresses such as s3:// cannot be published to yet"),
        ("file:///srv/models", "must be a folder"),
        ("~/models", "must be a folder, written out"),
        ("", "must name a folder and is empty, got ''"),
        ("models/export/versions", r"must not lie in paths\.export"),
        (".work/../data/raw", r"must not lie in paths\.raw"),
        *((folder, "must not hold the project; name") for folder in (".", "src/..", "..", "/")),
        *(
            (
                folder,
                rf"must not lie in {re.escape(folder.split('/')[0])}, which the project has for itself; name",
            )
            for folder in (
                "data",
                "data/served",
                "models",
                "models/served",
                "metrics",
                "metrics/served",
                "docs",
                "own/x",
                "src/x",
                ".git/x",
                ".dvc",
                ".venv/x",
                ".ruff_cache/x",
                ".hidden",
            )
        ),
    ],
)
def test_a_place_that_cannot_keep_versions_is_refused_before_anything_runs(config, load, to, told):
    with pytest.raises(ConfigError, match=f"--to {told}"):
        publish(config, to=to)
    with pytest.raises(ConfigError, match=rf"publish\.url {told}"):
        load(**{"publish.url": to})


@pytest.mark.parametrize("to", ["served", "database", "served/data", "../data"])
def test_any_other_folder_can_be_published_to(load, to):
    assert load(**{"publish.url": to}).publish.url == to


def test_folders_that_lie_elsewhere_do_not_reserve_those_above_them(load, tmp_path_factory):
    above = tmp_path_factory.mktemp("elsewhere")
    changed = {"publish.url": str(above / "served"), "paths.export": str(above / "export")}
    assert load(**changed).publish.url == changed["publish.url"]


def test_a_version_goes_with_going_back_alone(config):
    with pytest.raises(ConfigError, match="add --rollback"):
        publish(config, version=1)


def test_going_back_waits_for_no_stage_of_the_checkout(config, workspace):
    for model in "ab":
        write_export(config, model)
        publish(config)
    with locks.stage(config.paths.work, "train"):
        done = subprocess.run([sys.executable, "-m", "perennial", "publish", "--rollback"], check=False)
    assert (done.returncode, (workspace / "served" / "current").readlink()) == (0, Path("1"))


def test_going_back_asks_for_no_decision(config, workspace):
    for model in "ab":
        write_export(config, model)
        publish(config)
    config.paths.decision.unlink()
    assert publish(config, rollback=True).version == 1
    assert (workspace / "served" / "current" / "saved_model.pb").read_text() == "graph of a"
