"""Two versions of perennial as packages, and a project of the first one."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.checkout import copy_project
from support.installed import Project

BIN = Path(sys.executable).parent
LEFT_OUT = ("tests", "benchmarks", ".ci", ".github")  # the wheel has the docs


def build(folder: Path, edits: Mapping[str, tuple[str, str]]) -> Path:
    """Build a wheel of this tree with edits, and install it into a folder, which is returned.

    edits: by file, a text and what replaces it.
    """
    source, packages = folder / "source", folder / "packages"
    copy_project(source, LEFT_OUT)
    for name, (old, new) in edits.items():
        text = (source / name).read_text(encoding="utf-8")
        assert old in text, f"{old} is not in {name}"
        (source / name).write_text(text.replace(old, new), encoding="utf-8")
    _run(BIN / "hatchling", "build", "-t", "wheel", "-d", folder, folder=source)
    (wheel,) = folder.glob("*.whl")
    install = ("install", "-q", "--no-deps", "--no-index", "--target", packages, wheel)
    _run(sys.executable, "-m", "pip", "--disable-pip-version-check", *install, folder=folder)
    return packages


def project(folder: Path, packages: Path) -> Project:
    """A project of a version, committed."""
    Project(folder.parent, packages).must("perennial", "new", folder.name)
    return Project(folder, packages)


def git(made: Project, *arguments: str) -> str:
    """Run git in a project."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    return _run("git", *identity, *arguments, folder=made.folder)


def commit(made: Project) -> None:
    """Commit all that is there."""
    git(made, "add", "-A")
    git(made, "commit", "-qm", "Change", "--allow-empty")


def _run(*command: str | Path, folder: Path, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
