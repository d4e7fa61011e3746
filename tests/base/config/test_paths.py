"""Paths: what a stage may replace, what DVC can version, and where models may be published."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from support import forks

from perennial.base.config import paths
from perennial.base.errors import ConfigError

ROOT = Path(__file__).parents[3]
OUTSIDE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp"
REFUSED = [
    ({"paths.work": "src"}, "paths.work"),
    ({"paths.work": "data/../src"}, "paths.work"),
    ({"paths.work": "src/../params.yaml"}, "paths.work"),
    ({"paths.work": "own"}, "paths.work"),
    ({"paths.work": "pins"}, "paths.work"),
    ({"paths.work": "/etc/perennial"}, "paths.work"),
    ({"paths.work": str(Path.home())}, "paths.work"),
    ({"paths.work": ".venv"}, "paths.work"),
    ({"paths.work": ".dvc/work"}, "paths.work"),
    ({"paths.work": "data"}, "data/raw must not lie in paths.work"),
    ({"paths.work": "data/raw"}, "data/raw"),
    ({"paths.raw": "photos"}, "paths.raw is gone"),
    ({"dataset.path": "data/raw/own"}, "dataset.path"),
    ({"dataset.path": "data"}, "dataset.path"),
    ({"publish.url": "photos", "dataset.path": "photos"}, "publish.url"),
    ({"publish.url": "photos/served", "dataset.path": "photos"}, "publish.url"),
    ({"publish.url": "served", "dataset.path": "served/photos"}, "publish.url"),
    ({"publish.url": "inside/served", "dataset.path": "real"}, "publish.url"),
    ({"publish.url": "models/served"}, "publish.url"),
    ({"publish.url": "~/served"}, "publish.url"),
    ({"publish.url": ""}, "publish.url"),
    ({"checkpoints.remote": ".work/remote"}, "checkpoints.remote"),
    ({"checkpoints.remote": "http://host/work"}, "checkpoints.remote"),
]
ACCEPTED = [
    {"paths.work": "inside/work"}, {"paths.work": f"{OUTSIDE}/work"}, {"paths.work": "../work"},
    {"publish.url": "served"}, {"checkpoints.remote": "s3://bucket/work"},
    {"dataset.path": "/srv/photos", "publish.url": "/srv/models"},
]  # fmt: skip


def test_no_output_may_replace_a_file_or_folder_of_the_project():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git repository")
    tracked = {name.partition(b"/")[0].decode() for name in done.stdout.split(b"\0") if name}
    outputs = {str(default).partition("/")[0] for default in asdict(paths.Paths()).values()}
    assert tracked >= {"src", "README.md"}
    assert tracked - outputs - paths.SOURCES == set()


@pytest.fixture
def links(workspace):
    """A symbolic link to a folder of the project."""
    (workspace / "real").mkdir()
    (workspace / "inside").symlink_to("real")


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize(("change", "key"), REFUSED)
def test_a_path_that_is_not_ours_to_replace_is_refused(load, change, key):
    with pytest.raises(ConfigError, match=f": {key}"):
        load(**change)


def test_the_absolute_path_of_an_output_is_the_same_as_the_relative_one(load, workspace):
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        load(**{"dataset.path": str(workspace / "data" / "raw")})


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("change", ACCEPTED)
def test_other_places_are_accepted(load, change):
    load(**change)


def test_a_project_in_a_system_folder_is_accepted(load, workspace, monkeypatch):
    monkeypatch.setattr(paths, "SYSTEM", (workspace.parent,))
    load()
    with pytest.raises(ConfigError, match=r"paths\.work must not be a system folder"):
        load(**{"paths.work": str(workspace.parent / "beside")})


@pytest.mark.parametrize("cache", [".dvc/cache", "cache", f"{OUTSIDE}/perennial-test-cache"])
@pytest.mark.parametrize("whole", [True, False])
def test_outputs_that_are_links_into_the_cache_of_dvc_are_accepted(load, workspace, cache, whole):
    folder = workspace / cache / "files" / "md5" / "ab"
    folder.mkdir(parents=True)
    (workspace / "metrics").mkdir()
    for name in ("metrics.json", "scores.json"):  # of equal content, so of one object
        (workspace / "metrics" / name).symlink_to(folder / ("c" * 30))
    if whole:
        (folder / ("c" * 30)).write_text("{}")
    try:
        assert load()
    finally:
        shutil.rmtree(workspace / cache)


@pytest.mark.parametrize("target", ["src", "src/new"])
def test_a_link_from_an_output_to_a_folder_of_the_project_is_refused(load, workspace, target):
    (workspace / "src").mkdir()
    (workspace / "data").mkdir()
    (workspace / "data" / "records").symlink_to(f"../{target}")
    with pytest.raises(ConfigError, match="data/records must not lie in src"):
        load()


@pytest.mark.fast_rows("outside")
@pytest.mark.parametrize("target", ["inside", "outside"])
def test_dvc_versions_the_outputs_that_we_accept_and_no_others(load, workspace, tmp_path_factory, target):
    (workspace / "real").mkdir()
    (workspace / "data").symlink_to(tmp_path_factory.mktemp("outside") if target == "outside" else "real")
    path = "data/raw"
    try:
        load()
        accepted = True
    except ConfigError:
        accepted = False
    make = f"{shlex.quote(sys.executable)} -c \"open('{path}', 'w').write('x')\""
    (workspace / "dvc.yaml").write_text(f"stages:\n  s:\n    cmd: {json.dumps(make)}\n    outs: ['{path}']\n")
    dvc, environment = [forks.python(), "-m", "dvc"], {**os.environ, "DVC_NO_ANALYTICS": "1"}
    for command in (["git", "init", "-q"], [*dvc, "init", "-q"]):
        subprocess.run(command, check=True, env=environment)
    done = subprocess.run([*dvc, "repro", "-q"], check=False, env=environment)
    assert accepted == (done.returncode == 0)


def test_a_user_without_a_home_folder_can_load_parameters(load, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setitem(sys.modules, "pwd", None)  # no entry either, as in some containers
    assert load().paths.work == Path(".work")
