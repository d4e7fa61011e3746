"""Run the upgrade of another version of perennial, which knows the files of that version."""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perennial.base import limits
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.processes import programs
from perennial.base.project import code_digests
from perennial.base.project.source_code import DISTRIBUTION
from perennial.orchestration.run_setup import run_environment
from perennial.project.new.own_wheel import NAME

WRONG = ("/", "\\", " ", "=", "<", ">", "@")  # in no version
# One of each says where packages come from. uv reads no pip.conf, and would ask the public index.
CHOSEN = (("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NO_INDEX"), ("PIP_INDEX_URL", "PIP_NO_INDEX"))


def package(named: str | None) -> str | None:
    """What an installer is asked for, if an upgrade is to another perennial than the one that runs."""
    if named is None or named == code_digests.installed():
        return None
    file = Path(named)
    if file.name.startswith(f"{NAME}-") and file.suffix == ".whl" and file.is_file():
        return str(file.absolute())
    if any(each in named for each in WRONG) or not named[:1].isdigit() or file.suffix == ".whl":
        raise ConfigError(
            f"VERSION must be one, such as {code_digests.installed()}, or a wheel of perennial, got {named}"
        )
    if not all(any(map(os.environ.get, names)) for names in CHOSEN):
        raise ConfigError(
            f"the public index is not asked for {DISTRIBUTION}: another project may have this name there; "
            f"name the wheel (`perennial upgrade {NAME}-{named}-py3-none-any.whl`), or an index of yours in "
            "UV_DEFAULT_INDEX and PIP_INDEX_URL"
        )
    return f"{DISTRIBUTION}=={named}"


def run(wanted: str, options: Sequence[str]) -> int:
    """Install a package beside those of this Python, and run its upgrade; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        try:
            run_environment.install(sys.executable, [["--no-deps", "--target", folder, wanted]])
        except PerennialError as error:
            raise PerennialError(
                f"{wanted} cannot be installed: {error}; nothing was changed: check the version and the index"
            ) from error
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [sys.executable, "-m", "perennial", "upgrade", *options]
        done = programs.run(command, limit_s=limits.INSTALL_S, env=environment, to=print)
        sys.stderr.write(done.errors)
        return done.code
