"""The automations of infra/automations.yaml on the server, and the webhook that its alerts go to."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import BlockDocumentUpdate
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings
from prefect.types import SecretDict
from pydantic import SecretStr
from ruamel.yaml import YAML

FILE = Path("infra", "automations.yaml")
NOTIFY_URL = "PERENNIAL_NOTIFY_URL"
WEBHOOK = "perennial-alerts"  # name of the block
WEBHOOK_ID, UI = "{{ webhook }}", "{{ ui }}"  # in the file of automations


def install(client: SyncPrefectClient, others: str = "") -> None:
    """Create the automations of infra/automations.yaml, or update those of the same name."""
    # `PERENNIAL_NOTIFY_URL` in the environment is the address that alerts go to; by default it is that of an
    # earlier installation. Without any, no automation that sends alerts is installed. `others`: the projects
    # that share the server. Automations are for all runs there, so what exists stays, and nobody else's alerts
    # go to this project's webhook.
    address = os.environ.get(NOTIFY_URL)
    webhook = _save_webhook(client, None if others else address)
    for automation in _declared(webhook):
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


def check() -> None:
    """Check the file of automations."""
    list(_declared(str(UUID(int=0))))


def _declared(webhook: str | None) -> Iterator[AutomationCore]:
    """The automations of the file; without a webhook, those that need none."""
    text = FILE.read_text(encoding="utf-8").replace(UI, get_current_settings().ui_url or "")
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
