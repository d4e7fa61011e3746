"""Rebuild the versions without a proof, and record a proof of each equal one."""

from prefect import flow

from perennial.orchestration.guard.one_at_a_time import require_worth_starting
from perennial.orchestration.steps.rebuild_versions import rebuild_run_name
from perennial.orchestration.terminal.flow_command import run_plain
from perennial.orchestration.work.parameters import check_parameters
from tasks.steps import list_unproven, rebuild_version, report_rebuilds, require_all_equal


@flow(flow_run_name=rebuild_run_name, log_prints=True)
def rebuild(version: str | None = None) -> dict[str, str]:
    """Rebuild every version that has no proof yet, oldest first, or only `version`.

    If a version differs or cannot be rebuilt, the others are still rebuilt.
    """
    require_worth_starting()
    check_parameters()
    found = {}
    for name in [version] if version else list_unproven():
        found[name] = rebuild_version(name)
    report_rebuilds(found)
    require_all_equal(found)
    return {name: each["result"] for name, each in found.items()}


if __name__ == "__main__":
    run_plain(rebuild)
