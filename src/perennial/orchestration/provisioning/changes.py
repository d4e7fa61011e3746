"""What a deployment changed of what the server had: a person may have set it there."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from prefect.client.schemas.responses import DeploymentResponse

from perennial.base.errors import redacted

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
SCHEDULE = {"id", "created", "updated", "deployment_id", "slug"}  # what is not shown of one


def changes(before: DeploymentResponse, after: DeploymentResponse) -> Iterator[str]:
    """The differences between two states of a deployment, such as `tags is now [], was ["a"]`."""
    yield from _differences("", _facts(before), _facts(after))


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
    elif before != after:
        if name.startswith(VARIABLES) and not name.startswith(OURS):
            yield f"{name} is {'removed' if after is None else 'set'}"
        else:
            yield f"{name} is now {_shown(after)}, was {_shown(before)}"


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    return redacted(value if isinstance(value, str) else json.dumps(value))
