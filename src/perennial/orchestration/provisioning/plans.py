"""The deployments of prefect.yaml: read and checked before anything is brought to the server."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from prefect.cli.deploy._models import DeploymentConfig
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.templating import apply_values, resolve_block_document_references, resolve_variables
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial.base.layout import Project
from perennial.orchestration.client.owner import FOLDER, PIPELINE, LocalOwner
from perennial.orchestration.provisioning import automations, prefect_schedules
from perennial.orchestration.work.stage_failures import ExitCode

FILE = Path("prefect.yaml")
RESOLVED = ("name", "schedule", "schedules")  # needed here; `prefect deploy` resolves all


def refuse(message: str) -> NoReturn:
    """End this process with exit code 2 and a message."""
    sys.stderr.write(message + "\n")
    sys.exit(ExitCode.USAGE)


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
        refuse(f"{FILE}: {error}; nothing was deployed")
    names = [each.name for each in planned]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        refuse(f"{FILE}: two deployments are called {', '.join(twice)}; rename one; nothing was deployed")
    try:
        automations.check()
    except (OSError, YAMLError, LookupError, TypeError, ValueError) as error:
        refuse(f"{automations.FILE}: {error}; nothing was deployed")
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
        planned = Planned(
            name=name, owner=local, schedules=prefect_schedules.declared(declared), declared=declared, text=text
        )
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
