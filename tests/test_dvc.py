"""Calls of DVC: outputs of other revisions."""

import shutil
from pathlib import Path

import pytest
from support.pipelines import Project

from perennial import dvc
from perennial.dvc import DvcError


@pytest.fixture
def older(tmp_path, monkeypatch):
    """The commit of an output that is older than the remote that holds it; the cache is gone."""
    project = Project(tmp_path / "project", tmp_path / "home")
    for folder in (project.folder, project.home):
        folder.mkdir()
    (project.folder / "dvc.yaml").write_text("stages: {make: {cmd: echo it > out, outs: [out]}}\n")
    project.git("init", "-q", "-b", "main")
    project.must("dvc", "init", "-q")
    project.must("dvc", "repro", "-q")
    project.git("add", ".")
    project.git("commit", "-qm", "Start")
    commit = project.git("rev-parse", "HEAD").strip()
    project.must("dvc", "remote", "add", "-q", "-d", "store", str(tmp_path / "store"))
    project.git("commit", "-qam", "Add a remote")
    project.must("dvc", "push", "-q")
    shutil.rmtree(project.folder / ".dvc" / "cache")
    monkeypatch.chdir(project.folder)
    return commit


def test_an_output_older_than_the_remote_is_fetched_from_it(older, tmp_path):
    dvc.get("out", older, tmp_path / "found")
    assert (tmp_path / "found").read_text() == "it\n"


def test_the_reason_is_named_where_no_remote_has_the_output(older, tmp_path):
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(DvcError, match=r"`dvc get` failed: ERROR: .*out"):
        dvc.get("out", older, tmp_path / "found")
    assert not Path(tmp_path / "found").exists()
