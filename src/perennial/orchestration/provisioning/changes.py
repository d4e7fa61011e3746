"""What `perennial deploy` changed of what the server had: a person may have set it there."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.schemas.automations import AutomationCore

from perennial.base.errors import redacted

NOT_OURS = {"enabled", "owner_resource"}  # of an automation: a person's, and the server's
FIELDS = (
    "description",
    "tags",
    "parameters",
    "work_pool_name",
    "work_queue_name",
    "job_variables",
    "concurrency_options",
    "enforce_parameter_schema",
)
VARIABLES = "job_variables.env."  # their values may be secrets, and are not shown
OURS = f"{VARIABLES}PERENNIAL_"
LONGEST = 300  # characters of a value
SCHEDULE = {"id", "created", "updated", "deployment_id", "slug"}  # what is not shown of one


def changes(before: DeploymentResponse, after: DeploymentResponse) -> Iterator[str]:
    """The differences between two states of a deployment, such as `tags is now [], was ["a"]`."""
    yield from _differences("", _facts(before), _facts(after))


def of_automation(before: AutomationCore, after: AutomationCore) -> Iterator[str]:
    """The differences between two states of an automation."""
    fields = set(AutomationCore.model_fields) - NOT_OURS
    shown = (_in_order(each.model_dump(mode="json", include=fields)) for each in (before, after))
    yield from _differences("", *shown)


def _in_order(value: Any) -> Any:
    """JSON in which the order of texts is no difference: triggers hold sets of them."""
    if isinstance(value, Mapping):
        return {key: _in_order(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(value) if all(isinstance(each, str) for each in value) else list(map(_in_order, value))
    return value


def _facts(deployment: DeploymentResponse) -> dict[str, Any]:
    """What a person can set, as JSON; the schedules by their slugs."""
    shown = deployment.model_dump(mode="json", include=set(FIELDS))
    limit = deployment.global_concurrency_limit
    shown["concurrency_limit"] = limit.limit if limit else None
    shown["schedules"] = {
        each.slug or str(each.id): each.model_dump(mode="json", exclude=SCHEDULE)
        for each in deployment.schedules
    }
    return shown


def _differences(name: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _differences(f"{name}.{key}" if name else key, before.get(key), after.get(key))
    elif _are_lists_of_parts(before, after):
        for number, pair in enumerate(zip(before, after, strict=True), 1):
            yield from _differences(f"{name}.{number}", *pair)
    elif before != after:
        if name.startswith(VARIABLES) and not name.startswith(OURS):
            yield f"{name} is {'removed' if after is None else 'set'}"
        else:
            yield f"{name} is now {_shown(after)}, was {_shown(before)}"


def _are_lists_of_parts(before: Any, after: Any) -> bool:
    lists = isinstance(before, list) and isinstance(after, list) and len(before) == len(after)
    return lists and all(isinstance(each, Mapping) for each in (*before, *after))


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    plain = isinstance(value, str) and value.isprintable()
    text = redacted(value if plain else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
