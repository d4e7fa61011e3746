"""Install the automations of infra/automations.yaml on the server."""

import os
from pathlib import Path

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.schemas.automations import AutomationCore
from ruamel.yaml import YAML

FILE = Path("infra", "automations.yaml")
WEBHOOK = "perennial-webhook"  # name of the block
WEBHOOK_ID = "{{ webhook }}"


def install(client: SyncPrefectClient) -> None:
    """Create the automations, or update those of the same name.

    `PERENNIAL_WEBHOOK` in the environment is the address for messages about failures. Without it none are sent,
    or those of an earlier installation go on.
    """
    webhook = _save_webhook(os.environ.get("PERENNIAL_WEBHOOK"))
    for declared in YAML(typ="safe").load(FILE)["automations"]:
        for action in declared["actions"]:
            if action.get("block_document_id") == WEBHOOK_ID:
                action["block_document_id"] = webhook
        if any(action.get("block_document_id", "") is None for action in declared["actions"]):
            continue
        automation = AutomationCore.model_validate(declared)
        if found := client.read_automations_by_name(automation.name):
            client.update_automation(found[0].id, automation)
        else:
            client.create_automation(automation)


def _save_webhook(address: str | None) -> str | None:
    """The id of the block that sends to an address; None without one."""
    if not address:
        return None
    content = {"title": "{{subject}}", "text": "{{subject}}\n{{body}}"}
    block = CustomWebhookNotificationBlock.model_validate(
        {"name": WEBHOOK, "url": address, "json_data": content}
    )
    return str(block.save(WEBHOOK, overwrite=True))
