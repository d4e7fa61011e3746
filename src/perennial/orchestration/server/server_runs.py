"""The runs of a pipeline on the Prefect server, seen from one of them."""

import logging
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import get_client, runtime
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound
from prefect.states import Running

from perennial.base.errors import ConfigError
from perennial.orchestration.client.owner import LocalOwner, Owner, clash, owner, owner_of_checkout
from perennial.orchestration.engine import this_run

PIPELINE = "classifier"  # of a run that names none
TIMEOUT_S = 10.0
POLL_S = 5.0
SERVER_S = 3600.0  # maximum wait for the server
DELETED = "this run was deleted on the server"
LATE = "its heartbeats were late or lost, but it is alive"
TAG = "perennial"  # of every run of the project's flows
PLACE, INSIDE = "repository ", "folder "  # starts of the tags that say where a run by hand works
PAGE = 200  # the server's maximum per request


class Runs:
    """The runs of a pipeline. Methods raise httpx.HTTPError if the server cannot be reached."""

    def __init__(self, pipeline: str = PIPELINE) -> None:
        self.pipeline = pipeline
        self.id = UUID(this_run.run_id())
        self.name = this_run.run_name()
        self._flow = of_flows(str(runtime.flow_run.flow_name))
        # Its own settings make it a separate client; the flow's client is used by another thread.
        self._client: SyncPrefectClient = get_client(httpx_settings={"timeout": TIMEOUT_S}, sync_client=True)
        self._ours = Ours(self._client)

    def own(self) -> FlowRun:
        """This run as the server knows it."""
        return self._client.read_flow_run(self.id)

    def at_work(self) -> list[FlowRun]:
        """Other runs that are running or being cancelled, the first in line first."""
        return sorted(self.others(in_states(StateType.RUNNING, StateType.CANCELLING)), key=place_in_line)

    def history(self) -> list[State[Any]]:
        """The states of this run, the oldest first."""
        return sorted(self._client.read_flow_run_states(self.id), key=lambda state: state.timestamp)

    def before_running(self) -> State[Any] | None:
        """The state from which this run was last set to Running."""
        pairs = reversed(list(pairwise(self.history())))
        return next((before for before, state in pairs if state.type == StateType.RUNNING), None)

    def set_state(self, state: State[Any], *, run: UUID | None = None, force: bool = False) -> State[Any]:
        """Set the state of a run, of this one by default; returns the state that it then has."""
        done = self._client.set_flow_run_state(run or self.id, state, force=force)
        return done.state or state

    def line_up_again(self) -> State[Any]:
        """Set this run to Running, at the end of the line, where it did not come from Pending."""
        # Twice: a run that looked before the first was visible is before the second in line.
        self.set_state(Running(message=LATE))
        return self.set_state(Running(message=LATE))

    def others(self, which: FlowRunFilter) -> list[FlowRun]:
        """Other runs of the pipeline that the filter names."""
        return [run for run in self._ours.runs(self._flow, which, self.pipeline) if run.id != self.id]


class Ours:
    """Tells the runs of this project from those of others on the server."""

    def __init__(self, client: SyncPrefectClient, pipeline: str | None = None) -> None:
        self.owner: LocalOwner = owner_of_checkout(Path.cwd(), pipeline)
        self._client = client
        self._owners: dict[UUID, Owner] = {}

    def runs(self, flows: FlowFilter, which: FlowRunFilter, pipeline: str | None) -> list[FlowRun]:
        """The runs of a pipeline of this project, including those of which it is not known whose they are."""
        found = self._client.read_flow_runs(flow_filter=flows, flow_run_filter=which, limit=PAGE)
        return [run for run in found if pipeline_of(run) == pipeline and self._is_own(run)]

    def deployment(self, name: str) -> DeploymentResponse:
        """A deployment of this project, by its name with the flow's."""
        try:
            found = self._client.read_deployment_by_name(name)
        except ObjectNotFound as error:
            raise ConfigError(
                f"the server has no deployment {name}; `perennial deploy` registers it"
            ) from error
        whose = owner(found.job_variables, found.parameters)
        if not self.owner.owns(whose):
            raise ConfigError(clash(name, whose, self.owner))
        return found

    def _is_own(self, run: FlowRun) -> bool:
        if run.deployment_id is None:
            places, folders = (
                {tag.removeprefix(mark) for tag in run.tags if tag.startswith(mark)} for mark in (PLACE, INSIDE)
            )
            same_folder = folders == ({self.owner.folder} if self.owner.folder else set())
            return not places or (same_folder and not places.isdisjoint(self.owner.places))
        if run.deployment_id not in self._owners:
            try:
                found = self._client.read_deployment(run.deployment_id)
                self._owners[run.deployment_id] = owner(found.job_variables, None)
            except ObjectNotFound:  # removed meanwhile
                self._owners[run.deployment_id] = Owner(None)
        return self.owner.owns(self._owners[run.deployment_id])


def tags_by_hand() -> list[str]:
    """The tags of a run that no deployment started."""
    local = owner_of_checkout(Path.cwd(), None)
    inside = [f"{INSIDE}{local.folder}"] if local.folder else []
    return [TAG, *(f"{PLACE}{place}" for place in sorted(local.places)), *inside]


def of_flows(*names: str) -> FlowFilter:
    """Flows of these names."""
    return FlowFilter.model_validate({"name": {"any_": names}})


def in_states(*states: StateType, **others: object) -> FlowRunFilter:
    """Runs in one of these states, and of which all others hold, too."""
    return FlowRunFilter.model_validate({"state": {"type": {"any_": states}}, **others})


def due_now() -> FlowRunFilter:
    """Scheduled runs that should have started by now."""
    return in_states(StateType.SCHEDULED, next_scheduled_start_time={"before_": datetime.now(UTC)})


def pipeline_of(run: FlowRun) -> str:
    """The pipeline that a run was started for."""
    return str(run.parameters.get("pipeline") or PIPELINE)


def place_in_line(run: FlowRun) -> tuple[bool, datetime, str]:
    """Sort key: runs that are being cancelled first, since they still work; then the longest running one."""
    # The start of a run does not count: a run that was marked as dead and restarts goes to the end of the line.
    state = run.state
    assert state is not None
    return state.type != StateType.CANCELLING, state.timestamp, str(run.id)


def await_server(log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """Wait up to an hour until the server answers, since Prefect itself gives up within a minute."""
    deadline, logged = time.monotonic() + SERVER_S, False
    while time.monotonic() < deadline:
        if get_client(httpx_settings={"timeout": TIMEOUT_S}, sync_client=True).api_healthcheck() is None:
            return
        if not logged:
            log.warning("the Prefect server does not answer; waiting for it")
            logged = True
        time.sleep(POLL_S)
