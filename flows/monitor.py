"""Check the champion, and start a retraining when a rule of `monitor` fires."""

from typing import Any

from prefect import flow

from tasks.command import run_plain
from tasks.guard import require_worth_starting
from tasks.monitor import look, report, require_all_seen, run_name, start
from tasks.parameters import check_parameters


@flow(flow_run_name=run_name, log_prints=True)
def monitor(deployment: str = "retrain/on-demand") -> dict[str, Any]:
    """Check the source, the champion and new data; retrain if a rule of `monitor` in params.yaml fires.

    One change starts one run of `deployment`, however often this flow runs.
    """
    require_worth_starting()
    check_parameters()
    seen = look()
    run = start(deployment, seen) if seen["retrain"] else None
    report(seen, run)
    require_all_seen(seen)
    return seen


if __name__ == "__main__":
    run_plain(monitor)
