"""The record of a run in `runs`: its start and its end; its stages add what they did."""

import json
from contextlib import suppress

from perennial.orchestration.engine import this_run
from perennial.orchestration.work.perennial_command import perennial
from perennial.orchestration.work.stage_failures import StageFailed


def start_record(reason: str | None) -> dict[str, str]:
    """Start the record of this run in `runs`; returns the results of its stages, none yet."""
    request = {name: value for name, value in this_run.parameters().items() if value not in (None, {})}
    perennial("runs", "start", str(this_run.run_id()), f"--request={json.dumps(request)}")
    if reason:
        this_run.log().info("reason: %s", reason)
    return {}


def record_end(run: str, outcome: str, message: str) -> None:
    """Add the outcome of a run to its record, if it has one."""
    with suppress(StageFailed):  # with invalid parameters there is no record
        perennial("runs", "end", run, "--outcome", outcome, "--message", message)
