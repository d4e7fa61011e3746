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
    found = provenance()
    assert (found.revision, found.changed) == (git("rev-parse", "HEAD"), ())


def test_changed_files_are_named(checkout):
    Path("params.yaml").write_text("changed")
    Path("größe.txt").write_text("new")
    git("add", "größe.txt")
    assert provenance().changed == ("größe.txt", "params.yaml")


def test_what_a_run_writes_is_no_change(checkout):
    for file in ("dvc.lock", "baseline.json"):
        Path(file).write_text("old")
    git("add", ".")
    git("commit", "-qm", "results")
    for file in ("dvc.lock", "baseline.json"):
        Path(file).write_text("new")
    assert provenance(Path("baseline.json")).changed == ()


def test_no_checkout_has_no_revision(workspace, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(workspace.parent))
    found = provenance()
    assert (found.revision, found.changed, found.lock) == (None, (), None)


def test_without_git_there_is_no_revision(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance().revision is None


def test_the_lock_and_the_packages_are_told(checkout):
    Path("dvc.lock").write_bytes(b"lock")
    found = provenance()
    assert found.lock == hashlib.sha256(b"lock").hexdigest()
    assert [name for name, _ in found.packages] == ["Python", "tensorflow", "keras", "numpy", "dvc", "prefect"]
