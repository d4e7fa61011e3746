"""The work pools of a project: cpu and gpu, for processes, and those with a template in infra/pools."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from perennial.base.errors import ConfigError
from perennial.orchestration.remote_runs.status import KIND

FOLDER = Path("infra", "pools")
PROCESSES = ("cpu", "gpu")
OF_TEMPLATES = {"job_manifest": "kubernetes", "image": "docker"}  # kinds, by what only their jobs have


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A work pool as the project declares it; `file` has the template of one that is not for processes."""

    name: str
    kind: str
    template: Mapping[str, Any]
    file: Path | None = None


def declared(names: Iterable[str]) -> dict[str, Pool]:
    """The pools cpu and gpu, and those of these names that have a template, by name."""
    process = ProcessWorker.get_default_base_job_template()
    found = {name: Pool(name=name, kind=KIND, template=process) for name in PROCESSES}
    for name in sorted(set(names) - set(PROCESSES)):
        file = FOLDER / f"{name}.json"
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


def set_up(client: SyncPrefectClient, pool: Pool, limit: int, *, shared: bool) -> None:
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
