"""Run the upgrade of another version of perennial, which knows the files of that version."""

import os
import sys
import tempfile
from collections.abc import Sequence

from perennial.base import limits
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.processes import programs
from perennial.base.project import code_digests
from perennial.base.project.source_code import DISTRIBUTION
from perennial.orchestration.run_setup import run_environment

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
    try:
        run_environment.install(sys.executable, [["--no-deps", "--target", folder, package]])
    except PerennialError as error:
        raise PerennialError(
            f"{package} cannot be installed: {error}; nothing was changed: check the version and the index"
        ) from error
