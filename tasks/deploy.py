"""Set up or update a Prefect server for perennial: work pools, automations, deployments and their schedules.

A second run changes nothing. A schedule that a person resumed or paused stays as it is.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit
from uuid import UUID

import httpx
from prefect import get_client
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import get_current_settings
from prefect.types import SecretDict
from prefect.workers.process import ProcessWorker
from pydantic import SecretStr
from ruamel.yaml import YAML

from tasks.dvc import ExitCode

FILE = Path("prefect.yaml")
AUTOMATIONS = Path("infra", "automations.yaml")
REPOSITORY, NOTIFY_URL = "PERENNIAL_REPOSITORY", "PERENNIAL_NOTIFY_URL"
WEBHOOK = "perennial-alerts"  # name of the block
WEBHOOK_ID, UI = "{{ webhook }}", "{{ ui }}"  # in the file of automations
POOLS = ("cpu", "gpu")
OURS = DeploymentFilter(tags=DeploymentFilterTags(all_=["perennial"]))  # the tag of every deployment here
RUNS_AT_ONCE = 1  # limit of the pool; a deployment's limit is a lease, which can end a healthy run


def main() -> None:
    """Deploy to the server that PREFECT_API_URL names; exit with 2 if there is none."""
    server = get_current_settings().api.url
    if not server:
        _refuse(
            "PREFECT_API_URL is not set. Start a server with `prefect server start`, then "
            "`export PREFECT_API_URL=http://127.0.0.1:4200/api` and run this again."
        )
    if _has_credentials(os.environ.get(REPOSITORY, "")):
        _refuse(
            f"{REPOSITORY} holds credentials, which the server would store and show; nothing was "
            "deployed. Remove them from the address. On the worker's machine, git takes them from a credential "
            "helper, ~/.netrc, an SSH key or the environment."
        )
    address = os.environ.get(NOTIFY_URL)
    if address and not _is_web_address(address):  # it may hold a secret, so no message shows it
        _refuse(f"{NOTIFY_URL} must be an address that starts with https:// or http://; nothing was deployed")
    params = YAML(typ="safe").load(Path("params.yaml"))
    os.environ.setdefault("PERENNIAL_PIPELINE", params["record"]["artifact"])
    try:
        with get_client(sync_client=True) as client:
            repository = os.environ.setdefault(REPOSITORY, _deployed_repository(client) or str(Path.cwd()))
            for pool in POOLS:
                _set_up_pool(client, pool)
            install_automations(client)
            names = _deploy(client, YAML(typ="safe").load(FILE))
            _remove_others(client, names)
    except (httpx.TransportError, PrefectHTTPStatusError) as error:
        _refuse(f"the Prefect server {server} cannot be used: {error}")
    sys.stdout.write(f"Deployed to {server}: {', '.join(names)}\n")
    workers = "python -m tasks.worker --pool cpu"
    sys.stdout.write(f"Runs will check out {repository} ({REPOSITORY}); start a worker: {workers}\n")


def _deployed_repository(client: SyncPrefectClient) -> str | None:
    """The repository that runs check out already; None if nothing is deployed yet."""
    variables = (each.job_variables or {} for each in client.read_deployments(deployment_filter=OURS))
    return next((found for each in variables if (found := each.get("env", {}).get(REPOSITORY))), None)


def _has_credentials(repository: str) -> bool:
    """Whether an address contains a password or token; the user name of an SSH address is not one."""
    if "://" not in repository:
        return False
    parts = urlsplit(repository)
    user = parts.username and parts.scheme not in {"ssh", "git+ssh"}
    return bool(user or parts.password is not None or parts.query)


def _is_web_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return False


def _refuse(message: str) -> NoReturn:
    sys.stderr.write(message + "\n")
    sys.exit(ExitCode.USAGE)


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
        prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
        # Not shown if all is well: it names commands that start workers without our supervisor.
        command = [*prefect, "deploy", "--all", "--prefect-file", str(file)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout)
            sys.exit(done.returncode)
    for name, changed in schedules.items():
        if deployment := _deployment(client, name):
            _schedule(client, deployment, changed)
    return list(schedules)


def _deployment(client: SyncPrefectClient, name: str) -> UUID | None:
    try:
        return client.read_deployment_by_name(name).id
    except ObjectNotFound:
        return None


def _schedule(client: SyncPrefectClient, deployment: UUID, declared: Sequence[Mapping[str, Any]]) -> None:
    """Update the declared schedules, which stay active or paused; keep schedules that a person added."""
    existing = {each.slug: each.id for each in client.read_deployment_schedules(deployment)}
    for each in declared:
        schedule = CronSchedule(cron=each["cron"], timezone=each["timezone"])
        if found := existing.get(each["slug"]):
            client.update_deployment_schedule(deployment, found, schedule=schedule, slug=each["slug"])
        else:
            new = DeploymentScheduleCreate(schedule=schedule, active=each["active"], slug=each["slug"])
            client.create_deployment_schedules(deployment, [new])


def _remove_others(client: SyncPrefectClient, names: Sequence[str]) -> None:
    """Remove deployments of this project that prefect.yaml no longer names."""
    for each in client.read_deployments(deployment_filter=OURS):
        name = f"{client.read_flow(each.flow_id).name}/{each.name}"
        if name not in names:
            client.delete_deployment(each.id)
            sys.stdout.write(f"Removed the deployment {name}, which {FILE} no longer names\n")


def install_automations(client: SyncPrefectClient) -> None:
    """Create the automations of infra/automations.yaml, or update those of the same name.

    `PERENNIAL_NOTIFY_URL` in the environment is the address that alerts go to; by default it is that of an
    earlier installation. Without any, no automation that sends alerts is installed.
    """
    webhook = _save_webhook(client, os.environ.get(NOTIFY_URL))
    text = AUTOMATIONS.read_text(encoding="utf-8").replace(UI, get_current_settings().ui_url or "")
    for declared in YAML(typ="safe").load(text)["automations"]:
        actions = [
            {**action, "block_document_id": webhook}
            if action.get("block_document_id") == WEBHOOK_ID
            else action
            for action in declared["actions"]
        ]
        if any(action.get("block_document_id", "") is None for action in actions):
            continue
        automation = AutomationCore.model_validate({**declared, "actions": actions})
        if found := client.read_automations_by_name(automation.name):
            automation.enabled = found[0].enabled
            client.update_automation(found[0].id, automation)
        else:
            client.create_automation(automation)
    sys.stdout.write(
        "Alerts go to the webhook that the server keeps; `perennial alert` sends a test\n"
        if webhook
        else f"No alerts are sent: set {NOTIFY_URL} to the address of a webhook and deploy again\n"
    )


def _save_webhook(client: SyncPrefectClient, address: str | None) -> str | None:
    """Save the block that calls an address, which the server encrypts; returns its id.

    Without an address, an existing block is kept.
    """
    if address:
        headers = SecretDict({"Content-Type": "application/json"})
        return str(Webhook(url=SecretStr(address), headers=headers).save(WEBHOOK, overwrite=True))
    try:
        return str(client.read_block_document_by_name(WEBHOOK, "webhook", include_secrets=False).id)
    except ObjectNotFound:
        return None


if __name__ == "__main__":
    main()
