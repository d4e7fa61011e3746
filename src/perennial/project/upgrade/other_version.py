"""Run the upgrade of another version of perennial, which knows the files of that version."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from perennial.base import limits
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.processes import programs
from perennial.base.project import code_digests
from perennial.base.project.source_code import DISTRIBUTION

LINES = 5  # of an installer's message
WRONG = ("/", "\\", " ", "=", "<", ">", "@")  # in no version


def is_other(version: str | None) -> bool:
    """Whether an upgrade to a version is that of another perennial than the one that runs."""
    if version is None:
        return False
    if any(each in version for each in WRONG) or not version[:1].isdigit():
        raise ConfigError(f"VERSION must be one, such as {code_digests.installed()}, got {version}")
    return version != code_digests.installed()


def run(version: str, options: Sequence[str]) -> int:
    """Install a version beside the packages of this Python, and run its upgrade; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        _install(f"{DISTRIBUTION}=={version}", folder)
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [sys.executable, "-m", "perennial", "upgrade", *options]
        done = programs.run(command, limit_s=limits.INSTALL_S, env=environment, to=print)
        sys.stderr.write(done.errors)
        return done.code


def _install(package: str, folder: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv") or (str(beside) if beside.exists() else None)
    wanted = ["--quiet", "--no-deps", "--target", folder, package]
    commands = [[uv, "pip", "install", "--python", sys.executable, *wanted]] if uv else []
    if find_spec("pip"):  # an environment of uv has none; but mirrors are often set for pip alone
        commands.append([sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *wanted])
    message = "" if commands else "neither uv nor pip is installed"
    for command in commands:
        done = programs.run(command, limit_s=limits.INSTALL_S)
        if not done.code:
            return
        message = done.last_lines(LINES)
    raise PerennialError(
        f"{package} cannot be installed: {message}; nothing was changed: check the version and the index"
    )
