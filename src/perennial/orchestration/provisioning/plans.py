"""The deployments of prefect.yaml and their schedules: read, checked, then brought to the server.

Schedules are of all kinds that Prefect accepts. One that a person resumed, paused or added stays as it is.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.cli.deploy._models import DeploymentConfig
from prefect.cli.deploy._schedules import _schedule_config_to_deployment_schedule as parsed
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.templating import apply_values, resolve_block_document_references, resolve_variables
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial.base.errors import ConfigError
from perennial.base.layout import Project
from perennial.orchestration.client.owner import FOLDER, PIPELINE, LocalOwner
from perennial.orchestration.provisioning import infra

FILE = Path("prefect.yaml")
RESOLVED = ("name", "schedule", "schedules")  # needed here; `prefect deploy` resolves all
UNNAMED = "schedule-{}"  # slug of one without, by its place, so that a changed one replaces itself


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A deployment of prefect.yaml: its name, such as retrain/nightly, its values and its schedules."""

    name: str
    owner: LocalOwner
    text: Mapping[str, Any]  # of the whole file
    declared: dict[str, Any]
    schedules: list[DeploymentScheduleCreate]


def read(owners: Mapping[Project, LocalOwner]) -> list[Planned]:
    """Read and check prefect.yaml, for each pipeline of the project."""
    # In a `prefect.yaml` in its folder, a pipeline may have other values of a deployment, by the same name.
    try:
        text = YAML(typ="safe").load(FILE)
        planned = [
            _planned(template, project, local, text)
            for project, local in owners.items()
            for template in _with_own(text["deployments"], project)
        ]
    except (OSError, YAMLError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"{FILE}: {error}") from error
    names = [each.name for each in planned]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{FILE}: two deployments are called {', '.join(twice)}; rename one")
    try:
        list(infra.declared_automations(str(UUID(int=0))))
    except (OSError, YAMLError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"{infra.AUTOMATIONS}: {error}") from error
    return planned


def _with_own(templates: Sequence[dict[str, Any]], project: Project) -> list[dict[str, Any]]:
    """The deployments of a pipeline: those of the project, with its own values."""
    file = project.folder / FILE
    own = YAML(typ="safe").load(file)["deployments"] if project.name and file.is_file() else []
    named = {each["name"]: each for each in own}
    known = [{**each, **named.pop(each["name"], {})} for each in templates]
    return [*known, *named.values()]


def _planned(template: dict[str, Any], project: Project, local: LocalOwner, text: Mapping[str, Any]) -> Planned:
    os.environ[PIPELINE] = local.pipeline or ""
    values: Any = apply_values(template, dict(os.environ), remove_notset=False)
    declared = json.loads(json.dumps(values, default=str))  # dates as text
    if "{{" in json.dumps([declared.get(key) for key in RESOLVED]):
        declared |= asyncio.run(_resolved(declared))
    if missing := [key for key in ("name", "entrypoint") if not declared.get(key)]:
        raise ValueError(f"a deployment has no {missing[0]}: {json.dumps(declared, default=str)[:200]}")
    try:
        flow: Flow[..., Any] = load_flow_from_entrypoint(declared["entrypoint"])
    except Exception as error:
        raise ValueError(f"entrypoint {declared['entrypoint']} of {declared['name']}: {error}") from error
    declared["name"] = project.deployment(declared["name"])
    name = f"{flow.name}/{declared['name']}"
    declared["tags"] = [*(declared.get("tags") or []), *local.tags(project.name)]
    environment = declared.setdefault("work_pool", {}).setdefault("job_variables", {}).setdefault("env", {})
    environment |= {PIPELINE: local.pipeline} | ({FOLDER: local.folder} if local.folder else {})
    try:
        planned = Planned(name=name, owner=local, schedules=_schedules(declared), declared=declared, text=text)
        DeploymentConfig.model_validate(declared)
    except ValidationError as error:
        raise ValueError(f"{name}: {'; '.join(dict.fromkeys(_reasons(error)))}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return planned


def _reasons(error: ValidationError) -> Iterator[str]:
    """What is wrong; of the forms that a schedule may have, the one that prefect.yaml takes."""
    for problem in error.errors():
        place = list(map(str, problem["loc"]))
        own = [part for part in place if "RawScheduleConfig" not in part]
        if place[0] not in {"schedule", "schedules"} or len(own) < len(place):
            yield f"{'.'.join(own)}: {problem['msg']}"


async def _resolved(declared: dict[str, Any]) -> dict[str, Any]:
    """Name and schedules with the values of Prefect's variables and blocks, which they name."""
    asked = {key: declared[key] for key in RESOLVED if key in declared}
    resolved: dict[str, Any] = await resolve_variables(await resolve_block_document_references(asked))
    return resolved


def _schedules(deployment: dict[str, Any]) -> list[DeploymentScheduleCreate]:
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


def bring_schedules(
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
