"""Set a Prefect server up for perennial, or update it: work pools, automations, deployments, schedules.

Doing it again changes nothing. A schedule that a person resumed or paused stays as it is.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterTags,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import get_current_settings
from prefect.workers.process import ProcessWorker
from ruamel.yaml import YAML

from tasks import automations

FILE = Path("prefect.yaml")
POOLS = ("cpu", "gpu")
OLD_POOL = "perennial"  # of earlier versions
TAG = "perennial"  # of every deployment of ours
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
    params = YAML(typ="safe").load(Path("params.yaml"))
    os.environ.setdefault("PERENNIAL_PIPELINE", params["record"]["artifact"])
    try:
        with get_client(sync_client=True) as client:
            for pool in POOLS:
                _set_up_pool(client, pool)
            automations.install(client)
            names = _deploy(client, YAML(typ="safe").load(FILE))
            _remove_what_is_gone(client, names)
    except (httpx.TransportError, PrefectHTTPStatusError) as error:
        _refuse(f"the Prefect server {server} cannot be used: {error}")
    workers = "python -m tasks.worker --pool cpu"
    sys.stdout.write(f"Runs will check out {repository}; start a worker: {workers}\n")


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


def _set_up_pool(client: SyncPrefectClient, name: str) -> None:
    """Create a work pool if there is none, and set its limit."""
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))
    client.update_work_pool(name, WorkPoolUpdate(concurrency_limit=RUNS_AT_ONCE))


def _deploy(client: SyncPrefectClient, declared: dict[str, Any]) -> list[str]:
    """Create or update all deployments; returns their names, such as retrain/nightly.

    `prefect deploy` replaces schedules, so those of deployments that are there already are left to `_schedule`.
    """
    schedules = {}
    for each in declared["deployments"]:
        name = f"{each['entrypoint'].rpartition('.')[2]}/{each['name']}"
        known = _deployment(client, name) is not None
        schedules[name] = each.pop("schedules", []) if known else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prefect.yaml")
        YAML(typ="safe").dump(declared, file)
        command = [
            sys.executable,
            "-m",
            "prefect",
            "--no-prompt",
            "deploy",
            "--all",
            "--prefect-file",
            str(file),
        ]
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(code)
    for name, wanted in schedules.items():
        if deployment := _deployment(client, name):
            _schedule(client, deployment, wanted)
    return list(schedules)


def _deployment(client: SyncPrefectClient, name: str) -> UUID | None:
    try:
        return client.read_deployment_by_name(name).id
    except ObjectNotFound:
        return None


def _schedule(client: SyncPrefectClient, deployment: UUID, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Update the declared schedules, which stay active or paused; a person's own stay as they are."""
    there = client.read_deployment_schedules(deployment)
    for each in wanted:
        schedule = CronSchedule(cron=each["cron"], timezone=each["timezone"])
        if found := next(_same(there, each["slug"], schedule), None):
            client.update_deployment_schedule(deployment, found.id, schedule=schedule, slug=each["slug"])
        else:
            new = DeploymentScheduleCreate(schedule=schedule, active=each["active"], slug=each["slug"])
            client.create_deployment_schedules(deployment, [new])


def _same(
    there: Sequence[DeploymentSchedule], slug: str, schedule: CronSchedule
) -> Iterator[DeploymentSchedule]:
    """The schedule of that name; those of earlier versions had none."""
    yield from (each for each in there if each.slug == slug)
    yield from (each for each in there if each.slug is None and each.schedule == schedule)


def _remove_what_is_gone(client: SyncPrefectClient, names: Sequence[str]) -> None:
    """Remove deployments of ours that prefect.yaml no longer names, and the pool that nothing uses any more."""
    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    for each in client.read_deployments(deployment_filter=ours):
        name = f"{client.read_flow(each.flow_id).name}/{each.name}"
        if name not in names:
            client.delete_deployment(each.id)
            sys.stdout.write(f"Removed the deployment {name}, which {FILE} no longer names\n")
    pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[OLD_POOL]))
    if not client.read_deployments(work_pool_filter=pool):
        try:
            client.delete_work_pool(OLD_POOL)
        except ObjectNotFound:
            return
        sys.stdout.write(f"Removed the work pool {OLD_POOL}, which no deployment uses any more\n")


if __name__ == "__main__":
    main()
