"""Publishing an export: what is refused, and where the rest goes."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from support import forks
from support.exports import content, decide, list_files, write_export

from perennial.base import files
from perennial.base.errors import ConfigError, DataError, QualityError
from perennial.base.processes import locks
from perennial.model import export_layout
from perennial.release.publishing.publish import publish


@pytest.fixture
def config(load):
    """Parameters with a promoted export and a folder to publish to."""
    config = load(**{"publish.url": "served"})
    write_export(config)
    return config


def test_the_command_line_names_another_folder(config, workspace):
    publish(config, to=str(workspace / "elsewhere"))
    assert (workspace / "elsewhere" / "current").exists()
    assert not (workspace / "served").exists()


def test_the_command_prints_version_and_path(config, capfd):
    for expected in (
        {"version": 1, "path": "served/1", "moved": True},
        {"version": 1, "path": "served/1", "moved": False},
    ):
        subprocess.run([forks.python(), "-m", "perennial", "publish", "--json"], check=True)
        assert json.loads(capfd.readouterr().out) == expected


def flip(file):
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])


WEIGHTS = Path("variables", "variables.index")
DAMAGES = {
    "a byte of the weights": (lambda export: flip(export / WEIGHTS), WEIGHTS),
    "no labels": (lambda export: (export / export_layout.LABELS).unlink(), export_layout.LABELS),
    "no description": (lambda export: (export / export_layout.DESCRIPTION).unlink(), export_layout.DESCRIPTION),
    "an additional file": (lambda export: (export / "assets" / "mine").touch(), "assets/mine"),
    "an empty list": (lambda export: files.write_json(export / export_layout.DIGESTS, {}), "model.json"),
    "a damaged list": (lambda export: (export / export_layout.DIGESTS).write_text("{"), "files.json"),
    "no list": (lambda export: (export / export_layout.DIGESTS).unlink(), "files.json"),
}


@pytest.mark.parametrize(("damage", "named"), DAMAGES.values(), ids=DAMAGES)
def test_an_export_that_was_changed_is_not_published(config, workspace, damage, named):
    publish(config)
    before = content(workspace / "served" / "current")
    damage(config.paths.export)  # although the current version is equal to it
    with pytest.raises(DataError, match=f"{named}.*nothing was published.*dvc repro export"):
        publish(config)
    assert content(workspace / "served" / "current") == before


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        ({"promote": False}, "test accuracy 0.5 is below 0.97"),
        ({"model": "other"}, "other and the data d, but models/export holds m of d"),
        ({"data": "other"}, "the model m and the data other"),
    ],
)
def test_only_a_promoted_export_is_published(config, workspace, decision, reason):
    decide(config, **decision)
    with pytest.raises(QualityError, match=f"{reason}.*nothing was published"):
        publish(config)
    assert not (workspace / "served").exists()


UNREADABLE = {
    "no promote": ("decision", {}, "promote"),
    "no model": ("decision", {"promote": True, "reasons": [], "candidate": {"data": "d"}}, "candidate.model"),
    "no weights": ("export", {"data": "d"}, "weights_sha256"),
}


@pytest.mark.parametrize(("makes", "value", "key"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_invalid_file_is_a_data_error_that_names_the_key(config, workspace, makes, value, key):
    if makes == "decision":
        files.write_json(config.paths.decision, value)
        file, stage = "decision.json", "gate"
    else:
        files.write_json(config.paths.export / export_layout.DESCRIPTION, value)
        list_files(config.paths.export)
        file, stage = "model.json", "export"
    with pytest.raises(DataError, match=rf"{file} .*{re.escape(key)}.*published.*dvc repro {stage}"):
        publish(config)
    assert not (workspace / "served").exists()


@pytest.mark.parametrize(("path", "stage"), [("export", "export"), ("decision", "gate")])
def test_a_missing_input_is_reported_with_its_stage(config, workspace, path, stage):
    getattr(config.paths, path).rename(workspace / "away")
    with pytest.raises(DataError, match=f"does not exist.*dvc repro {stage}"):
        publish(config)


def test_publishing_needs_a_folder(load):
    with pytest.raises(ConfigError, match=r"--to .*publish\.url"):
        publish(load())


OWN = (
    "data", "data/served", "models", "models/served", "metrics", "metrics/served", "docs", "own/x", "src/x",
    ".git/x", ".dvc", ".venv/x", ".ruff_cache/x", ".hidden",
)  # fmt: skip


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("s3://user:word@bucket/models", "(s3://bucket/prefix|must not hold a user name)"),
        ("s3://", "s3://bucket/prefix"),
        ("file:///srv/models", "must be a folder"),
        ("ftp://host/models", "must be a folder"),
        ("~/models", "~"),
        ("", "is empty, got ''"),
        ("models/export/versions", "models/export"),
        (".work/../data/raw", "data/raw"),
        *((folder, "must not hold the project") for folder in (".", "src/..", "..", "/")),
        *((folder, rf"must not lie in {re.escape(folder.split('/')[0])}") for folder in OWN),
    ],
)
def test_a_folder_that_cannot_keep_versions_is_refused_before_anything_runs(config, load, to, reason):
    with pytest.raises(ConfigError, match=f"--to .*{reason}"):
        publish(config, to=to)
    with pytest.raises(ConfigError, match=rf"publish\.url .*{reason}"):
        load(**{"publish.url": to})


@pytest.mark.parametrize(
    "to", ["served", "database", "served/data", "../data", "s3://bucket", "s3://bucket/a/b"]
)
def test_any_other_folder_can_be_published_to(load, to):
    assert load(**{"publish.url": to}).publish.url == to


def test_folders_elsewhere_do_not_reserve_their_parents(load, tmp_path_factory):
    above = tmp_path_factory.mktemp("elsewhere")
    changed = {"publish.url": str(above / "served"), "paths.work": str(above / "work")}
    assert load(**changed).publish.url == changed["publish.url"]


@pytest.fixture
def two_versions(config):
    for model in "ab":
        write_export(config, model)
        publish(config)
    return config


def test_a_rollback_neither_waits_for_a_stage_nor_needs_a_decision(two_versions, workspace):
    two_versions.paths.decision.unlink()
    with locks.stage(two_versions.paths.work, "train"):
        done = subprocess.run([forks.python(), "-m", "perennial", "publish", "--rollback"], check=False)
    assert (done.returncode, (workspace / "served" / "current").readlink()) == (0, Path("1"))
