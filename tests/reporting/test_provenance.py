"""Where a run came from."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from perennial.reporting.provenance import provenance


def git(*arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    done = subprocess.run(("git", *identity, *arguments), check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(workspace, monkeypatch):
    """A folder with one commit."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "start")
    return workspace


def test_a_clean_checkout_has_a_revision_and_no_changes(checkout):
    Path("report.html").write_text("untracked")
    found = provenance(())
    assert (found.revision, found.changed) == (git("rev-parse", "HEAD"), ())


def test_changed_files_are_named(checkout):
    Path("params.yaml").write_text("changed")
    Path("größe.txt").write_text("new")
    git("add", "größe.txt")
    assert provenance(()).changed == ("größe.txt", "params.yaml")


@pytest.fixture
def project(checkout, monkeypatch):
    """A project in a folder of a checkout, whose names have spaces and quotes."""
    folder = checkout / 'my "project"'
    folder.mkdir()
    for file in ("dvc.lock", "a file\n.txt", "gone.txt"):
        (folder / file).write_text("old")
    git("add", ".")
    git("commit", "-qm", "project")
    monkeypatch.chdir(folder)
    return folder


def test_in_a_folder_of_a_checkout_results_are_no_change_either(project):
    (project / "dvc.lock").write_text("new")
    assert provenance(()).changed == ()


def test_names_are_those_of_the_files_seen_from_the_project(project):
    (project / "a file\n.txt").write_text("new")
    (project / "gone.txt").unlink()
    assert provenance(()).changed == ("a file\n.txt", "gone.txt")


def test_what_lies_outside_of_the_project_is_none_of_it(project):
    (project.parent / "params.yaml").write_text("changed")
    assert provenance(()).changed == ()


def test_a_moved_file_is_told_by_both_names(project):
    git("mv", "gone.txt", "there.txt")
    assert provenance(()).changed == ("gone.txt", "there.txt")


def test_changes_that_git_does_not_tell_are_not_known(checkout):
    Path(".git", "index").write_bytes(b"damaged")
    found = provenance(())
    assert (found.revision is None, found.changed) == (False, None)


def test_what_a_run_writes_is_no_change(checkout):
    for file in ("dvc.lock", "baseline.json"):
        Path(file).write_text("old")
    git("add", ".")
    git("commit", "-qm", "results")
    for file in ("dvc.lock", "baseline.json"):
        Path(file).write_text("new")
    assert provenance((), Path("baseline.json")).changed == ()


def test_no_checkout_has_no_revision(workspace, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(workspace.parent))
    found = provenance(())
    assert (found.revision, found.changed, found.lock) == (None, None, None)


def test_without_git_there_is_no_revision(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance(()).revision is None


def test_the_lock_and_the_packages_are_told(checkout):
    Path("dvc.lock").write_bytes(b"lock")
    found = provenance(())
    assert found.lock == hashlib.sha256(b"lock").hexdigest()
    assert [name for name, _ in found.packages] == ["Python", "tensorflow", "keras", "numpy", "dvc", "prefect"]
