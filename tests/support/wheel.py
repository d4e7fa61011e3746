"""The package as it is installed: its wheel in an environment of its own, or two versions and a project."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from support.checkout import copy_project
from support.edits import edit
from support.git import git
from support.installed import Project

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LEFT_OUT = ("tests", "benchmarks", ".ci", ".github")  # the wheel has the docs


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without the variables of this Python; returns its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


def installed(folder: Path) -> Path:
    """Build and install the wheel, beside this Python's packages; returns the folder of its programs."""
    run(BIN / "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    install = ("install", "-q", "--no-deps", "--no-index", built)
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=folder)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A path in a .pth file comes last, and .pth files in it are ignored: the editable install stays unseen.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def build(folder: Path, edits: Mapping[str, tuple[str, str]]) -> Path:
    """Build a wheel of this tree with edits, and install it into a folder, which is returned.

    edits: by file, a text and what replaces it.
    """
    source, packages = folder / "source", folder / "packages"
    copy_project(source, LEFT_OUT)
    for name, (old, new) in edits.items():
        edit(source / name, old, new)
    run(BIN / "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    (built,) = folder.glob("*.whl")
    install = ("install", "-q", "--no-deps", "--no-index", "--target", packages, built)
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", *install, cwd=folder)
    return packages


def project(folder: Path, packages: Path) -> Project:
    """A project of a version, committed."""
    Project(folder.parent, packages).must("perennial", "new", folder.name)
    return Project(folder, packages)


def commit(made: Project) -> None:
    git("add", "-A", folder=made.folder)
    git("commit", "-qm", "Change", "--allow-empty", folder=made.folder)
