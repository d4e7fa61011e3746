"""Registers the work pool and the deployments of prefect.yaml; doing it again changes nothing."""

import os
import subprocess
import sys
from pathlib import Path

from prefect.settings import get_current_settings

POOL = "perennial"
RUNS_AT_ONCE = 1  # a limit of the pool: a deployment's own would be a lease that can end a good run


def main() -> None:
    """Talks to the server that PREFECT_API_URL names; ends with code 2 when none is named."""
    server = get_current_settings().api.url
    if not server:
        sys.stderr.write(
            "PREFECT_API_URL names no server. Start one with `prefect server start`, then "
            "`export PREFECT_API_URL=http://127.0.0.1:4200/api` and run this again.\n"
        )
        sys.exit(2)
    repository = os.environ.setdefault("PERENNIAL_REPOSITORY", str(Path.cwd()))
    if _prefect("work-pool", "inspect", POOL, quiet=True):
        _require("work-pool", "create", POOL, "--type", "process")
    _require("work-pool", "set-concurrency-limit", POOL, str(RUNS_AT_ONCE))
    _require("--no-prompt", "deploy", "--all")
    sys.stdout.write(
        f"Runs will be made from clones of {repository}; start a worker: prefect worker start --pool {POOL}\n"
    )


def _require(*arguments: str) -> None:
    """Runs a prefect command that must succeed."""
    if code := _prefect(*arguments):
        sys.exit(code)


def _prefect(*arguments: str, quiet: bool = False) -> int:
    """The exit code of a prefect command."""
    output = subprocess.DEVNULL if quiet else None
    command = [sys.executable, "-m", "prefect", *arguments]
    return subprocess.run(command, stdout=output, stderr=output, check=False).returncode


if __name__ == "__main__":
    main()
