"""The record of a run in `paths.runs`: its start and its end; its stages add what they did."""

import json
from contextlib import suppress
from typing import Any

from prefect import Flow, get_run_logger, runtime
from prefect.client.schemas.objects import FlowRun, State

from perennial.orchestration.work.dvc_repo import load_dvc
from perennial.orchestration.work.perennial_command import perennial
from perennial.orchestration.work.stage_failures import StageFailed


def start_record(reason: str | None) -> dict[str, str]:
    """Start the record of this run in `paths.runs`; returns the results of its stages, none yet."""
    request = {name: value for name, value in runtime.flow_run.parameters.items() if value not in (None, {})}
    start = ("runs", "start", str(runtime.flow_run.id), f"--request={json.dumps(request)}")
    perennial(*start, meanwhile=load_dvc)  # the tasks after this one need it
    if reason:
        get_run_logger().info("reason: %s", reason)
    return {}


def record_failure(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001 - Prefect's
    """Add to the record that the run failed or crashed; a hook of Prefect.

    For a run whose process is gone, Prefect's worker calls it outside the run's checkout, and nothing is added.
    """
    record_end(str(flow_run.id), state.name or "", state.message or "")


def record_end(run: str, outcome: str, message: str) -> None:
    """Add the outcome of a run to its record, if it has one."""
    with suppress(StageFailed):  # with invalid parameters there is no record
        perennial("runs", "end", run, "--outcome", outcome, "--message", message)
