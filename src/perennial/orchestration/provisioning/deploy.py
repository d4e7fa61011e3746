"""Set up or update a Prefect server for perennial: work pools, automations, deployments and their schedules.

A second run changes nothing. What a person resumed or paused stays as it is, and so does all that belongs to
another project; what a person changed otherwise is named and changed back.
"""

import io
import json
import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import cli, get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from ruamel.yaml import YAML

from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.layout import PIPELINES, Project
from perennial.base.project.git import Repository
from perennial.base.retries import TERMINAL_PAUSES_S
from perennial.orchestration.client import settings
from perennial.orchestration.client.owner import (
    REPOSITORY,
    SSH,
    LocalOwner,
    Owner,
    clash,
    owner,
    owner_of_checkout,
    require_no_password,
)
from perennial.orchestration.client.prefect_server import connect
from perennial.orchestration.provisioning import infra, plans
from perennial.orchestration.provisioning.infra import Pool
from perennial.orchestration.provisioning.plans import FILE, Planned

TAG = "perennial"  # of every deployment here
PAGE = 200  # the server's maximum per request
DEPLOYED = ("perennial.repository", "perennial.folder")  # git's settings in a checkout that deployed


def main() -> None:
    """Deploy to the server of Prefect's settings; exit with 2 if there is none."""
    try:
        require_no_password(os.environ.get(REPOSITORY, ""))
        address = os.environ.get(infra.NOTIFY_URL)
        if address and settings.problem(address):  # it may hold a secret, so no message shows it
            raise ConfigError(f"{infra.NOTIFY_URL} must be an address that starts with https:// or http://")
        with connect(pauses=TERMINAL_PAUSES_S) as server:
            server.reach()
            url = server.url
        with get_client(sync_client=True) as client:
            _deploy(client, redacted(url))
    except PerennialError as error:
        message = f"{error}; nothing was deployed"
    except (httpx.TransportError, PrefectHTTPStatusError) as error:
        message = f"the Prefect server {redacted(url)} cannot be used: {error}"
    else:
        return
    sys.stderr.write(message + "\n")
    sys.exit(ConfigError.exit_code)


def _deploy(client: SyncPrefectClient, server: str) -> None:
    """Check everything, then bring it to the server."""
    project = Project.find()
    os.chdir(project.root)
    known = {each: _owner(each) for each in project.pipelines() or [project]}
    there = {deployment.name: deployment for deployment in _deployments(client)}
    repository = os.environ[REPOSITORY] = _repository(list(known.values()), there.values())
    _require_source(repository)
    owners = {each: replace(whose, repository=repository) for each, whose in known.items()}
    plan = plans.read(owners)
    if not plan:
        raise ConfigError(f"{FILE} declares no deployments")
    wanted = infra.pools(_used(plan))
    for planned in plan:
        _require_ours(planned, there.get(planned.name), server)
        _require_pools(client, planned, wanted, server)
    ours = list(owners.values())
    others = [other for other in there.values() if not any(each.owns(other.owner) for each in ours)]
    elsewhere = ", ".join(sorted({str(other.owner) for other in others if TAG in other.found.tags}))
    shared = {other.found.work_pool_name for other in others}
    for pool in wanted.values():
        # The limit is the pool's: a deployment's is a lease, which can end a healthy run.
        infra.set_up_pool(client, pool, len(ours), shared=pool.name in shared)
    infra.install_automations(client, elsewhere)
    _bring(client, plan, there)
    _remove(client, ours, there.values(), {planned.name for planned in plan})
    # For when this checkout, or the address, moves; one that cannot be written names the repository.
    for name, value in zip(DEPLOYED, (repository, str(Path.cwd())), strict=True):
        Repository(Path()).ask("config", "--local", name, value)
    sys.stdout.write(f"Deployed to {server}: {', '.join(planned.name for planned in plan)}\n")
    folders = [each.folder for each in ours if each.folder]
    inside = f", folder{'s' if len(folders) > 1 else ''} {', '.join(folders)}" if folders else ""
    sys.stdout.write(
        f"Runs will check out {repository} ({REPOSITORY}){inside}; start a worker: "
        f"perennial worker{''.join(f' --pool {name}' for name in _used(plan)) or ' --pool cpu'}\n"
    )


def _owner(project: Project) -> LocalOwner:
    artifact = YAML(typ="safe").load(project.folder / "params.yaml")["record"]["artifact"]
    return owner_of_checkout(project.folder, artifact, more=_deployed_from_here())


@dataclass(frozen=True, kw_only=True)
class There:
    """A deployment on the server."""

    name: str  # with its flow's, such as retrain/nightly
    owner: Owner
    found: DeploymentResponse


def _deployments(client: SyncPrefectClient) -> Iterator[There]:
    """All deployments on the server, of every project."""
    flows: dict[UUID, str] = {}
    for page in range(sys.maxsize):
        listed = client.read_deployments(limit=PAGE, offset=page * PAGE)
        for found in listed:
            if found.flow_id not in flows:
                flows[found.flow_id] = client.read_flow(found.flow_id).name
            whose = owner(found.job_variables, found.parameters)
            yield There(name=f"{flows[found.flow_id]}/{found.name}", owner=whose, found=found)
        if len(listed) < PAGE:
            return


def _repository(ours: Sequence[LocalOwner], there: Collection[There]) -> str:
    """The repository that runs will check out: a named one, else the one that they check out already."""
    if os.environ.get(REPOSITORY):
        return ours[0].repository
    known = (deployment.owner for deployment in there if TAG in deployment.found.tags)
    owned = (whose.repository for whose in known if any(local.owns(whose) for local in ours))
    return next(filter(None, owned), ours[0].repository)


def _require_source(repository: str) -> None:
    """Refuse an address from which no worker could check out a run."""
    folder, problem = Path(repository.removeprefix("file://")), ""
    if not ("://" in repository or SSH.fullmatch(repository) or folder.is_absolute()):
        problem = f"must be an address that workers can reach, or an absolute path, got {repository}"
    elif folder.is_dir() and Repository(folder).is_incomplete():
        problem = f"must be what {folder} was cloned from: this clone lacks objects, so no run can use it"
    if problem:
        raise ConfigError(f"{REPOSITORY} {problem}")


def _used(plan: Sequence[Planned]) -> list[str]:
    """The names of the pools that deployments name."""
    named = ((planned.declared.get("work_pool") or {}).get("name") for planned in plan)
    return sorted({name for name in named if isinstance(name, str)})


def _require_ours(planned: Planned, there: There | None, server: str) -> None:
    """Refuse a name that belongs to another project."""
    if there is None:
        return
    local, whose, found = planned.owner, there.owner, there.found
    other_code = TAG not in found.tags or found.entrypoint != planned.declared["entrypoint"]
    unknown = whose.repository is None and other_code
    if unknown or not local.owns(whose):
        same = f"; if both are one, deploy first with {REPOSITORY}={redacted(whose.repository or '')}"
        raise ConfigError(
            f"{clash(planned.name, whose, local)}; {server} is unchanged; give this one a server of its own or "
            f"other names in {FILE}, or remove the other's deployments (`prefect deployment delete "
            f"{planned.name}`){'' if unknown or local.has(whose) else same}"
        )


def _require_pools(
    client: SyncPrefectClient, planned: Planned, wanted: Mapping[str, Pool], server: str
) -> None:
    """Refuse a pool that cannot run this project's runs."""
    for name in _used([planned]):
        pool = wanted.get(name)
        try:
            kind = client.read_work_pool(name).type
        except ObjectNotFound:
            if pool is None:
                raise ConfigError(
                    f"{planned.name}: {server} has no work pool {name}, and there is no "
                    f"{infra.POOLS / name}.json to make it from; name another pool in {FILE}, add that file, "
                    "or create the pool with `prefect work-pool create`"
                ) from None
            continue
        if pool and kind != pool.kind:
            raise ConfigError(
                f"{planned.name}: the work pool {name} on {server} is of type {kind}, not {pool.kind}; name "
                f"another pool in {FILE}, or a server of its own"
            )


def _bring(client: SyncPrefectClient, plan: Sequence[Planned], there: Mapping[str, There]) -> None:
    """Create or update all deployments."""
    # `prefect deploy` replaces schedules, so those of deployments that are there are brought one by one.
    known = [(planned, there[planned.name].found) for planned in plan if planned.name in there]
    for planned, before in known:
        planned.declared.pop("schedules", None)
        planned.declared["paused"] = before.paused
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prefect.yaml")
        # JSON is YAML of any version: a text such as `on` stays one.
        declared = {**plan[0].text, "deployments": [planned.declared for planned in plan]}
        file.write_text(json.dumps(declared, default=str), encoding="utf-8")
        # Not shown if all is well: it names commands that start workers without our supervisor.
        code, printed = _prefect("--no-prompt", "deploy", "--all", "--prefect-file", str(file))
        if code:
            sys.stderr.write(printed)
            sys.exit(code)
    for planned, before in known:
        plans.bring_schedules(client, planned.name, before.id, planned.schedules)
        if changed := _changed(before, client.read_deployment(before.id)):
            sys.stdout.write(f"{planned.name}: set {', '.join(changed)} as {FILE} has it\n")


def _changed(before: DeploymentResponse, after: DeploymentResponse) -> list[str]:
    """What differs of what a person can set on the server; by name, since values may be secrets."""
    fields = ("description", "tags", "parameters", "job_variables", "global_concurrency_limit", "schedules")
    ignored: Any = {"schedules": {"__all__": {"id", "created", "updated"}}, "global_concurrency_limit": {"id"}}
    had, has = (each.model_dump(include=set(fields), exclude=ignored) for each in (before, after))
    return [field for field in fields if had[field] != has[field]]


def _prefect(*command: str) -> tuple[int | str | None, str]:
    """Run a command of Prefect in this process, which has imported it; its exit code and what it prints."""
    printed, code, own = io.StringIO(), None, sys.argv
    sys.argv = ["prefect", *command]
    try:
        with redirect_stdout(printed):
            cli.app()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = own
    return code, printed.getvalue()


def _remove(
    client: SyncPrefectClient, ours: Sequence[LocalOwner], there: Collection[There], names: set[str]
) -> None:
    """Remove deployments that prefect.yaml no longer names, and those of pipelines that are gone."""
    top, folders = owner_of_checkout(Path.cwd(), None), {each.folder for each in ours}
    place = f"{top.folder}/{PIPELINES}".lstrip("/")
    for deployment in there:
        whose, found, reason = deployment.owner, deployment.found, ""
        if whose.repository is None or TAG not in found.tags:
            continue
        if any(local.owns(whose) for local in ours):
            started = ""
            if not found.paused and any(schedule.active for schedule in found.schedules):
                started = "; its schedule was active, and starts no more runs"
            reason = "" if deployment.name in names else f", which {FILE} no longer names{started}"
        elif whose.folder not in folders and whose.folder.rpartition("/")[0] == place:
            gone = top.has(replace(whose, folder=top.folder))
            reason = f": there is no {whose.folder} here" if gone else ""
        if reason:
            client.delete_deployment(found.id)
            sys.stdout.write(f"Removed the deployment {deployment.name}{reason}\n")


def _deployed_from_here() -> list[str]:
    """The repository that this checkout deployed before; none if it is a copy of the checkout that did."""
    git = Repository(Path())
    repository, folder = (git.ask("config", "--local", "--get", name) or "" for name in DEPLOYED)
    here = str(Path.cwd())
    return [repository] if repository and (folder == here or not Path(folder).exists()) else []
