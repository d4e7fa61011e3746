"""Rebuild the champion, or another version, and compare it with what was recorded."""

from perennial.orchestration.engine.decorators import flow
from perennial.orchestration.guard.one_at_a_time import require_worth_starting
from perennial.orchestration.steps.artifacts import run_name
from perennial.orchestration.terminal.flow_command import run_plain
from perennial.orchestration.work.parameters import check_parameters
from tasks.steps import find_champion, rebuild_version, report_rebuild


@flow(run_name=lambda: run_name("rebuild"))
def rebuild(version: str | None = None) -> str:
    """Rebuild a version, by default the champion; fails where it differs."""
    require_worth_starting()
    check_parameters()
    name = version or find_champion()
    if name is None:
        return "no version yet"
    found = rebuild_version(name)
    report_rebuild(name, found)
    return "equal"


if __name__ == "__main__":
    run_plain(rebuild)
