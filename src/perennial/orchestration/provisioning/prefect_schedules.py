"""The schedules of prefect.yaml: all kinds that Prefect accepts, checked first, then brought to the server.

A schedule that a person resumed, paused or added stays as it is.
"""

import sys
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from prefect.cli.deploy._schedules import _schedule_config_to_deployment_schedule as parsed
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.schedules import IntervalSchedule
from pydantic import ValidationError

UNNAMED = "schedule-{}"  # slug of one without, by its place, so that a changed one replaces itself


def declared(deployment: dict[str, Any]) -> list[DeploymentScheduleCreate]:
    """Check the schedules of a deployment, and give those without a slug one."""
    if deployment.get("schedule") and "schedules" in deployment:
        raise ValueError("it has `schedule` and `schedules`; keep `schedules`")
    given = deployment.pop("schedule", None) or deployment.get("schedules") or []
    listed = given if isinstance(given, list) else [given]
    found = []
    for number, each in enumerate(listed, 1):
        try:
            each.setdefault("slug", UNNAMED.format(number))
            found.append(DeploymentScheduleCreate(**parsed(each)))
        except ValidationError as error:
            reasons = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise ValueError(f"schedule {number}, {dict(each)}: {reasons}") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"schedule {number}, {each}: {error}") from error
    slugs = [each.slug for each in found]
    if twice := {slug for slug in slugs if slugs.count(slug) > 1}:
        raise ValueError(f"two of its schedules have the slug {', '.join(map(str, twice))}; each needs its own")
    if listed:
        deployment["schedules"] = listed
    return found


def bring(
    client: SyncPrefectClient, name: str, deployment: UUID, wanted: list[DeploymentScheduleCreate]
) -> None:
    """Create or change the declared schedules of a deployment, and remove what is no longer declared."""
    # Only schedules without a slug in prefect.yaml are removed: another one may be a person's.
    left = list(client.read_deployment_schedules(deployment))
    for each in wanted:
        found = _found(left, each, {other.slug for other in wanted})
        if found is None:
            client.create_deployment_schedules(deployment, [each])
            continue
        left.remove(found)
        if changes := _changes(found, each):
            client.update_deployment_schedule(deployment, found.id, **changes)
    unnamed = UNNAMED.partition("{")[0]
    for old in left:
        if (old.slug or "").removeprefix(unnamed).isdecimal() and (old.slug or "").startswith(unnamed):
            client.delete_deployment_schedule(deployment, old.id)
        else:
            named = old.slug or f"of id {old.id}"
            sys.stdout.write(f"{name} keeps the schedule {named}, which prefect.yaml does not name\n")


def _found(
    existing: list[DeploymentSchedule], wanted: DeploymentScheduleCreate, declared: set[str | None]
) -> DeploymentSchedule | None:
    """Find a declared schedule on the server: by its slug, by its old one, or by its content."""
    # A person may have changed its slug: a second one at the same times would start each run twice.
    for slug in (wanted.slug, wanted.replaces):
        if slug and (found := next((each for each in existing if each.slug == slug), None)):
            return found
    renamed = (each for each in existing if each.slug not in declared)
    same = (each for each in renamed if not _changes(each, wanted).keys() - {"slug"})
    return next(same, None)


def _changes(found: DeploymentSchedule, wanted: DeploymentScheduleCreate) -> Mapping[str, Any]:
    """What to change on the server; an interval that names no start keeps the one that it has."""
    schedule = wanted.schedule
    if (
        isinstance(schedule, IntervalSchedule)
        and isinstance(found.schedule, IntervalSchedule)
        and "anchor_date" not in schedule.model_fields_set
    ):
        schedule = schedule.model_copy(update={"anchor_date": found.schedule.anchor_date})
    own: dict[str, Any] = {"slug": wanted.slug, "parameters": wanted.parameters}
    changes = {name: value for name, value in own.items() if value != getattr(found, name)}
    same = schedule.model_dump(mode="json") == found.schedule.model_dump(mode="json")
    return changes if same else {"schedule": schedule, **changes}
