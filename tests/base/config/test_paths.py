"""Paths: what a stage may replace, what DVC can version, and where models may be published."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import forks

from perennial.base.config import paths
from perennial.base.errors import ConfigError

ROOT = Path(__file__).parents[3]
OUTSIDE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp"
REFUSED = [
    ({"paths.raw": "src"}, "paths.raw"),
    ({"paths.records": "data/../src"}, "paths.records"),
    ({"paths.records": "src/../params.yaml"}, "paths.records"),
    ({"paths.records": "own"}, "paths.records"),
    ({"paths.records": "/etc"}, "paths.records"),
    ({"paths.work": "/etc/perennial"}, "paths.work"),
    ({"paths.runs": str(Path.home())}, "paths.runs"),
    ({"paths.export": ".venv"}, "paths.export"),
    ({"paths.raw": ".dvc/raw"}, "paths.raw"),
    ({"paths.raw": "../raw"}, "paths.raw"),
    ({"paths.metrics": f"{OUTSIDE}/metrics.json"}, "paths.metrics"),
    ({"paths.records": "outside/records"}, "paths.records"),
    ({"paths.export": "models"}, "paths.model"),
    ({"paths.index": "data/raw"}, "paths."),
    ({"paths.baseline": "src/baseline.json"}, "paths.baseline"),
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
    {"paths.records": "inside/records"},
    {"paths.work": f"{OUTSIDE}/work"},
    {"paths.runs": "../runs"},
    {"paths.metrics": "cached.json"},
    {"publish.url": "served"},
    {"checkpoints.remote": "s3://bucket/work"},
    {"dataset.path": "/srv/photos", "publish.url": "/srv/models"},
]


def test_no_output_may_replace_a_file_or_folder_of_the_project():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git repository")
    tracked = {name.partition(b"/")[0].decode() for name in done.stdout.split(b"\0") if name}
    outputs = {str(default).partition("/")[0] for default in paths.PathsConfig().model_dump().values()}
    assert tracked >= {"src", "README.md"}
    assert tracked - outputs - paths.SOURCES == set()


@pytest.fixture
def links(workspace):
    """Symbolic links to another disk, to a folder of the project, and into a DVC cache outside."""
    (workspace / "real").mkdir()
    (workspace / "inside").symlink_to("real")
    (workspace / "outside").symlink_to(OUTSIDE)
    (workspace / "cached.json").symlink_to(f"{OUTSIDE}/cache/ab/cdef")


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
    for name in ("metrics.json", "scores.json"):  # of equal content, so of one object
        (workspace / name).symlink_to(folder / ("c" * 30))
    if whole:
        (folder / ("c" * 30)).write_text("{}")
    try:
        assert load(**{"paths.metrics": "metrics.json", "paths.scores": "scores.json"})
    finally:
        shutil.rmtree(workspace / cache)


@pytest.mark.parametrize("target", ["src", "src/new"])
def test_a_link_from_an_output_to_a_folder_of_the_project_is_refused(load, workspace, target):
    (workspace / "src").mkdir()
    (workspace / "outputs").symlink_to(target)
    with pytest.raises(ConfigError, match=r"paths\.records must not lie in src"):
        load(**{"paths.records": "outputs"})


@pytest.mark.fast_rows("../out")
@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("path", ["inside/out", "outside/perennial-test-out", "../out"])
def test_dvc_versions_the_outputs_that_we_accept_and_no_others(load, workspace, path):
    try:
        load(**{"paths.raw": path})
        accepted = True
    except ConfigError:
        accepted = False
    make = f"{shlex.quote(sys.executable)} -c \"open('{path}', 'w').write('x')\""
    (workspace / "dvc.yaml").write_text(f"stages:\n  s:\n    cmd: {json.dumps(make)}\n    outs: ['{path}']\n")
    dvc, environment = [forks.python(), "-m", "dvc"], {**os.environ, "DVC_NO_ANALYTICS": "1"}
    for command in (["git", "init", "-q"], [*dvc, "init", "-q"]):
        subprocess.run(command, check=True, env=environment)
    try:
        done = subprocess.run([*dvc, "repro", "-q"], check=False, env=environment)
    finally:
        Path(OUTSIDE, "perennial-test-out").unlink(missing_ok=True)
    assert accepted == (done.returncode == 0)


def test_a_user_without_a_home_folder_can_load_parameters(load, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setitem(sys.modules, "pwd", None)  # no entry either, as in some containers
    assert load().paths.work == Path(".work")
