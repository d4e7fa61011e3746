"""Register the work pool, the automations and the deployments; registering them again changes nothing."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from prefect import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import get_current_settings
from prefect.workers.process import ProcessWorker

from tasks import automations

POOL = "perennial"
RUNS_AT_ONCE = 1  # a limit of the pool: that of a deployment is a lease, which can end a healthy run
USAGE = 2


def main() -> None:
    """Deploy to the server that PREFECT_API_URL names; exit with 2 if there is none."""
    server = get_current_settings().api.url
    if not server:
        _refuse(
            "PREFECT_API_URL is not set. Start a server with `prefect server start`, then "
            "`export PREFECT_API_URL=http://127.0.0.1:4200/api` and run this again."
        )
    repository = os.environ.setdefault("PERENNIAL_REPOSITORY", str(Path.cwd()))
    if _has_credentials(repository):
        _refuse(
            "PERENNIAL_REPOSITORY holds credentials, which the server would store and show; nothing was "
            "deployed. Remove them from the address. On the worker's machine, git takes them from a credential "
            "helper, ~/.netrc, an SSH key or the environment."
        )
    try:
        _set_up_pool()
    except (httpx.TransportError, PrefectHTTPStatusError) as error:
        _refuse(f"the Prefect server {server} cannot be used: {error}")
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(code)
    sys.stdout.write(f"Runs will clone {repository}; start a worker: python -m tasks.worker --pool {POOL}\n")


def _has_credentials(repository: str) -> bool:
    """Whether an address holds a password or token; the user name of an SSH address is none."""
    if "://" not in repository:
        return False
    parts = urlsplit(repository)
    user = parts.username and parts.scheme not in {"ssh", "git+ssh"}
    return bool(user or parts.password is not None or parts.query)


def _refuse(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.exit(USAGE)


def _set_up_pool() -> None:
    """Create the work pool if there is none, and set its limit; install the automations."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
        except ObjectNotFound:
            template = ProcessWorker.get_default_base_job_template()
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=template))
        client.update_work_pool(POOL, WorkPoolUpdate(concurrency_limit=RUNS_AT_ONCE))
        automations.install(client)


if __name__ == "__main__":
    main()
