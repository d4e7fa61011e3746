"""Restart crashed runs that the server has not restarted, in a process beside the workers (`tasks.crashed`).

The server's automation reacts to events, and the server holds an event back for 15 minutes if the previous one
was lost, or could not be processed, as happens while its database is busy.
"""

import logging
import sys
import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import AwaitingRetry

from tasks.server import TIMEOUT_S, in_states

AUTOMATION = "perennial: start again"
FLOWS = ["retrain", "monitor", "rebuild", "approve"]
PERIOD_S = 30.0
LATE, OLD = timedelta(seconds=60), timedelta(days=1)  # the automation acts after 20 s
NEWEST = 50
log = logging.getLogger("perennial.worker")


def main() -> None:
    """Check the runs of some pools every half minute, until this process is terminated."""
    logging.basicConfig(format="perennial worker: %(message)s", level=logging.WARNING)
    while True:
        time.sleep(PERIOD_S)
        try:
            with get_client(httpx_settings={"timeout": TIMEOUT_S}, sync_client=True) as client:
                start_again(client, sys.argv[1:])
        except Exception as error:  # noqa: BLE001 - the server is away, restarts or is too busy
            log.debug("cannot look for crashed runs: %s", error)


def start_again(client: SyncPrefectClient, pools: Collection[str]) -> None:
    """Reschedule runs that have been Crashed for a minute, unless the automation is off.

    A run keeps its id, and its guard counts the restarts.
    """
    if not any(automation.enabled for automation in client.read_automations_by_name(AUTOMATION)):
        return
    crashed = client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=FLOWS)),
        flow_run_filter=in_states(StateType.CRASHED),
        sort=FlowRunSort.END_TIME_DESC,
        limit=NEWEST,
    )
    for run in crashed:
        age = datetime.now(UTC) - run.state.timestamp if run.state else OLD
        if run.deployment_id and run.work_pool_name in pools and LATE < age < OLD:
            log.warning("%s has been Crashed for %.0f s; it starts again", run.name, age.total_seconds())
            client.set_flow_run_state(run.id, AwaitingRetry(message="It crashed, and goes on where it was."))


if __name__ == "__main__":
    main()
