"""Check the champion, and start a retraining when a rule of `monitor` fires."""

from typing import Any

from perennial.orchestration.engine.decorators import flow
from perennial.orchestration.guard.one_at_a_time import require_worth_starting
from perennial.orchestration.steps.artifacts import run_name
from perennial.orchestration.terminal.flow_command import run_plain
from perennial.orchestration.work.parameters import check_parameters
from tasks.server_steps import check_champion, report_checks, require_all_seen, start_retraining


@flow(run_name=lambda: run_name("monitor"))
def monitor(deployment: str | None = None) -> dict[str, Any]:
    """Check the source, the champion and new data; retrain if a rule of `monitor` in params.yaml fires.

    One change starts one run of `deployment`, however often this flow runs.

    Args:
        deployment: Such as retrain/on-demand, which is the default; that of the pipeline in a further one.
    """
    require_worth_starting()
    check_parameters()
    seen = check_champion()
    run = start_retraining(deployment, seen) if seen["retrain"] else None
    report_checks(seen, run)
    require_all_seen(seen)
    return seen


if __name__ == "__main__":
    run_plain(monitor)
