"""Find dead runs that the server's automations miss, in a process beside the workers.

The automations react to events. The server holds an event back for 15 minutes if the previous one was lost or
could not be processed, as happens while its database is busy. A server that was restored from a backup does not
know which runs it was waiting for.
"""

import logging
import sys
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.schemas.automations import EventTrigger
from prefect.states import AwaitingRetry, Cancelled, Crashed, Failed

from perennial.base import logs
from perennial.base.retries import RESTARTS
from perennial.orchestration.remote_runs.status import FLOWS, KIND
from perennial.orchestration.run_setup.flow_run import GIVEN_UP, restarts
from perennial.orchestration.server.server_runs import TAG, TIMEOUT_S, in_states, of_flows

# Automations.
RESTART, DEAD = "perennial: start again", "perennial: dead runs"
WAITING = "perennial: runs that wait for a machine"
PERIOD_S = 30.0  # the period of heartbeats, too
OVERDUE, OLD = timedelta(seconds=60), timedelta(days=1)  # the automation acts after 20 s
NEWEST = 50
# Checks in a row that see no sign of life. The automations act after 80 s, 60 s and 15 minutes. In pools of
# this kind, a run has a process seconds after a worker took it; in pools of containers, it may wait for a
# machine as long as their automation lets it, and SPARE checks more.
CHECKS = {StateType.RUNNING: 6, StateType.CANCELLING: 6, StateType.PENDING: 40}
STARTING, SPARE = 4, 10
SIGNS = ["prefect.flow-run.heartbeat", "perennial.preparing"]
CAUSES = (
    "look at the worker's log, and at `working_dir` and `command` among the job variables of the deployment "
    "and of the pool; `perennial deploy` sets the deployment's again"
)
# The last sign of life of each run, and how many checks in a row saw only it.
Silent = dict[UUID, tuple[str, int]]
log = logging.getLogger("perennial.orchestration")


def main() -> None:
    """Check the runs of some pools every half minute, until this process is terminated."""
    logs.to_stderr("perennial worker: %(message)s", logging.WARNING)
    silent: Silent = {}
    while True:
        time.sleep(PERIOD_S)
        try:
            with get_client(httpx_settings={"timeout": TIMEOUT_S}, sync_client=True) as client:
                silent = end_silent(client, sys.argv[1:], silent)
                start_again(client, sys.argv[1:])
        except Exception as error:  # noqa: BLE001 - the server is down, restarting or too busy
            log.debug("cannot look for dead runs: %s", error)


def end_silent(client: SyncPrefectClient, pools: Collection[str], before: Silent) -> Silent:
    """End runs that have shown no sign of life for some checks, unless the automation is off."""
    # Checks count, not seconds: while the server is down, no heartbeat can arrive, and no check succeeds.
    # Returns what the next check needs.
    if not _is_on(client, DEAD):
        return {}
    after: Silent = {}
    local = {pool for pool in pools if client.read_work_pool(pool).type == KIND}
    waiting = _waiting_checks(client)
    for run in _ours(client, pools, *CHECKS):
        sign = _sign_of_life(client, run)
        if sign is None or run.state is None:
            continue
        last, checks = before.get(run.id, ("", 0))
        after[run.id] = sign, checks + 1 if sign == last else 0
        limit = CHECKS[run.state.type]
        if run.state.type == StateType.PENDING and run.work_pool_name in pools:
            limit = STARTING if run.work_pool_name in local else waiting
        if after[run.id][1] < limit:
            continue
        log.warning("%s shows no sign of life in state %s; it is ended", run.name, run.state.name)
        if run.state.type == StateType.CANCELLING:
            client.set_flow_run_state(run.id, Cancelled(message="It was cancelled, and its process was gone."))
        else:
            message = "No heartbeat was received: the process or its machine is gone."
            client.set_flow_run_state(run.id, Crashed(message=message))
    return after


def start_again(client: SyncPrefectClient, pools: Collection[str]) -> None:
    """Reschedule runs of deployments that have been Crashed for a minute, unless the automation is off."""
    # A run keeps its id, and its own process counts the restarts. One that never gets so far, because a worker
    # cannot start that process, is ended here.
    if not _is_on(client, RESTART):
        return
    for run in _ours(client, pools, StateType.CRASHED):
        if run.deployment_id is None:
            continue
        states = sorted(client.read_flow_run_states(run.id), key=lambda state: state.timestamp)
        if restarts([state.type.value for state in states]) > RESTARTS:
            message = f"{GIVEN_UP}; at last: {states[-1].message}; {CAUSES}"
            client.set_flow_run_state(run.id, Failed(message=message), force=True)
            continue
        age = datetime.now(UTC) - run.state.timestamp if run.state else OLD
        if OVERDUE < age < OLD:
            log.warning("%s has been Crashed for %.0f s; it starts again", run.name, age.total_seconds())
            client.set_flow_run_state(
                run.id, AwaitingRetry(message="It crashed, and resumes where it stopped.")
            )


def _waiting_checks(client: SyncPrefectClient) -> int:
    """How many checks a run in a pool of containers may wait for a machine."""
    triggers = (each.trigger for each in client.read_automations_by_name(WAITING) if each.enabled)
    times = [each.within for each in triggers if isinstance(each, EventTrigger)]
    return SPARE + round(times[0].total_seconds() / PERIOD_S) if times else sys.maxsize


def _is_on(client: SyncPrefectClient, automation: str) -> bool:
    return any(each.enabled for each in client.read_automations_by_name(automation))


def _ours(client: SyncPrefectClient, pools: Collection[str], *states: StateType) -> Iterator[FlowRun]:
    """The newest runs in these states of deployments in these pools, and by hand."""
    found = client.read_flow_runs(
        flow_filter=of_flows(*FLOWS),
        flow_run_filter=in_states(*states, tags={"all_": [TAG]}),
        sort=FlowRunSort.END_TIME_DESC if states == (StateType.CRASHED,) else FlowRunSort.START_TIME_DESC,
        limit=NEWEST,
    )
    return (run for run in found if run.deployment_id is None or run.work_pool_name in pools)


def _sign_of_life(client: SyncPrefectClient, run: FlowRun) -> str | None:
    """The run's state and last heartbeat; None for a running one without any: it may send none."""
    asked = {
        "filter": {"event": {"name": SIGNS}, "resource": {"id": [f"prefect.flow-run.{run.id}"]}},
        "limit": 1,
    }
    found = client.request("POST", "/events/filter", json=asked).json()["events"]
    if not run.state or (not found and run.state.type == StateType.RUNNING):
        return None
    return f"{run.state.id} {found[0]['occurred'] if found else ''}"


if __name__ == "__main__":
    main()
