"""What infra/ has for the server: templates of work pools, and automations with the webhook of their alerts."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import BlockDocumentUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings
from prefect.types import SecretDict
from prefect.workers.process import ProcessWorker
from pydantic import SecretStr
from ruamel.yaml import YAML

from perennial.base.errors import ConfigError
from perennial.orchestration.remote_runs.status import KIND

POOLS, AUTOMATIONS = Path("infra", "pools"), Path("infra", "automations.yaml")
PROCESSES = ("cpu", "gpu")
OF_TEMPLATES = {"job_manifest": "kubernetes", "image": "docker"}  # kinds, by what only their jobs have
NOTIFY_URL = "PERENNIAL_NOTIFY_URL"
WEBHOOK = "perennial-alerts"  # name of the block
WEBHOOK_ID, UI = "{{ webhook }}", "{{ ui }}"  # in the file of automations


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A work pool as the project declares it; `file` has the template of one that is not for processes."""

    name: str
    kind: str
    template: Mapping[str, Any]
    file: Path | None = None


def pools(names: Iterable[str]) -> dict[str, Pool]:
    """The pools cpu and gpu, and those of these names that have a template, by name."""
    process = ProcessWorker.get_default_base_job_template()
    found = {name: Pool(name=name, kind=KIND, template=process) for name in PROCESSES}
    for name in sorted(set(names) - set(PROCESSES)):
        file = POOLS / f"{name}.json"
        if file.is_file():
            found[name] = _read(name, file)
    return found


def _read(name: str, file: Path) -> Pool:
    try:
        template = json.loads(file.read_text(encoding="utf-8"))
        configuration, _ = template["job_configuration"], template["variables"]["properties"]
        # Prefect keeps the type beside the template, not in it.
        kind = next((kind for key, kind in OF_TEMPLATES.items() if key in configuration), KIND)
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{file} is no template of a work pool ({type(error).__name__}: {error}); "
            "`prefect work-pool get-default-base-job-template --type kubernetes` shows what one looks like"
        ) from error
    return Pool(name=name, kind=kind, template=template, file=file)


def set_up_pool(client: SyncPrefectClient, pool: Pool, limit: int, *, shared: bool) -> None:
    """Create a work pool if there is none; else set its limit and its template."""
    # What is there stays if others' deployments use it, too, or if it is of another type.
    try:
        there = client.read_work_pool(pool.name)
    except ObjectNotFound:
        template = dict(pool.template)
        client.create_work_pool(WorkPoolCreate(name=pool.name, type=pool.kind, base_job_template=template))
        client.update_work_pool(pool.name, WorkPoolUpdate(concurrency_limit=limit))
        return
    if there.type != pool.kind or shared:
        return
    if there.concurrency_limit != limit:
        client.update_work_pool(pool.name, WorkPoolUpdate(concurrency_limit=limit))
        was = "not set" if there.concurrency_limit is None else there.concurrency_limit
        sys.stdout.write(f"work pool {pool.name}: concurrency_limit is now {limit}, was {was}\n")
    if pool.file and there.base_job_template != pool.template:
        client.update_work_pool(pool.name, WorkPoolUpdate(base_job_template=dict(pool.template)))
        sys.stdout.write(f"work pool {pool.name}: its template is now that of {pool.file}\n")


def install_automations(client: SyncPrefectClient, others: str = "") -> None:
    """Create the automations of infra/automations.yaml, or update those of the same name."""
    # `PERENNIAL_NOTIFY_URL` in the environment is the address that alerts go to; by default it is that of an
    # earlier installation. Without any, no automation that sends alerts is installed. `others`: the projects
    # that share the server. Automations are for all runs there, so what exists stays, and nobody else's alerts
    # go to this project's webhook.
    address = os.environ.get(NOTIFY_URL)
    webhook = _save_webhook(client, None if others else address)
    for automation in declared_automations(webhook):
        found = client.read_automations_by_name(automation.name)
        if not found:
            client.create_automation(automation)
        elif not others:
            automation.enabled = found[0].enabled
            client.update_automation(found[0].id, automation)
    if others and address:
        sys.stdout.write(
            f"{NOTIFY_URL} is not used: the server is shared with {others}, whose runs would send alerts "
            "there, too; its automations stay as they are\n"
        )
    sys.stdout.write(
        "Alerts go to the webhook that the server keeps; `perennial monitor --alert TEXT` sends a test\n"
        if webhook
        else f"No alerts are sent: set {NOTIFY_URL} to the address of a webhook and deploy again\n"
    )


def declared_automations(webhook: str | None) -> Iterator[AutomationCore]:
    """The automations of the file; without a webhook, those that need none."""
    text = AUTOMATIONS.read_text(encoding="utf-8").replace(UI, get_current_settings().ui_url or "")
    for declared in YAML(typ="safe").load(text)["automations"]:
        actions = [
            {**action, "block_document_id": webhook}
            if action.get("block_document_id") == WEBHOOK_ID
            else action
            for action in declared["actions"]
        ]
        if all(action.get("block_document_id", "") is not None for action in actions):
            yield AutomationCore.model_validate({**declared, "actions": actions})


def _save_webhook(client: SyncPrefectClient, address: str | None) -> str | None:
    """Save the block that calls an address, which the server encrypts; returns its id."""
    # Without an address, an existing block is kept; with another one, so is all else of it, such as headers.
    try:
        found = client.read_block_document_by_name(WEBHOOK, "webhook", include_secrets=bool(address))
    except ObjectNotFound:
        headers = SecretDict({"Content-Type": "application/json"})
        new = Webhook(url=SecretStr(address), headers=headers) if address else None
        return str(new.save(WEBHOOK)) if new else None
    if address and found.data["url"] != address:
        update = BlockDocumentUpdate(data={"url": address}, merge_existing_data=True)
        client.update_block_document(found.id, update)
        sys.stdout.write(f"block {WEBHOOK}: its address is now that of {NOTIFY_URL}\n")
    return str(found.id)
