"""Two versions of perennial as packages, and a project of the first one."""

import sys
from collections.abc import Mapping
from pathlib import Path

from support import wheel
from support.checkout import copy_project
from support.edits import edit
from support.git import git
from support.installed import Project

LEFT_OUT = ("tests", "benchmarks", ".ci", ".github")  # the wheel has the docs


def build(folder: Path, edits: Mapping[str, tuple[str, str]]) -> Path:
    """Build a wheel of this tree with edits, and install it into a folder, which is returned.

    edits: by file, a text and what replaces it.
    """
    source, packages = folder / "source", folder / "packages"
    copy_project(source, LEFT_OUT)
    for name, (old, new) in edits.items():
        edit(source / name, old, new)
    wheel.run(wheel.BIN / "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    (built,) = folder.glob("*.whl")
    install = ("install", "-q", "--no-deps", "--no-index", "--target", packages, built)
    wheel.run(sys.executable, "-m", "pip", "--disable-pip-version-check", *install, cwd=folder)
    return packages


def project(folder: Path, packages: Path) -> Project:
    """A project of a version, committed."""
    Project(folder.parent, packages).must("perennial", "new", folder.name)
    return Project(folder, packages)


def commit(made: Project) -> None:
    """Commit all that is there."""
    git("add", "-A", folder=made.folder)
    git("commit", "-qm", "Change", "--allow-empty", folder=made.folder)
