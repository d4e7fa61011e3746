"""The flow `rebuild`: list the versions without a proof, rebuild each, report the results."""

import json
from collections.abc import Mapping
from typing import Any

from prefect import get_run_logger, runtime

from perennial.base.layout import Project
from perennial.orchestration.server import artifacts
from perennial.orchestration.steps.summary_artifact import markdown_table
from perennial.orchestration.work.perennial_command import call_perennial, perennial
from perennial.orchestration.work.stage_failures import StageFailed

EQUAL, DIFFERENT, FAILED = "equal", "different", "failed"


def rebuild_run_name() -> str:
    """The name of a run, such as `rebuild 2026-11-22 04:00`."""
    return Project.find().titled(f"rebuild {runtime.flow_run.scheduled_start_time:%Y-%m-%d %H:%M}")


def list_unproven() -> list[str]:
    """The versions without a proof, the oldest first."""
    listed = json.loads(perennial("rebuild", "--list", "--json"))
    names = [each["version"] for each in listed if each["proof"] is None]
    get_run_logger().info("without a proof: %s", ", ".join(names) or "none")
    return names


def rebuild_version(version: str) -> dict[str, Any]:
    """The JSON of `perennial rebuild`, with a `result`: equal, different or failed.

    A version that is equal but whose proof could not be recorded is failed. The lines of its log go to the log
    of the run.
    """
    done = call_perennial("rebuild", version, "--push", "--json", log=get_run_logger().info)
    message = done.log[-1] if done.log else f"exit code {done.exit_code}"
    failed = {"result": FAILED, "code": done.exit_code or 1, "message": message}
    if not done.output.strip():
        return failed
    found: dict[str, Any] = json.loads(done.output)
    if not found["equal"]:
        return {**found, "result": DIFFERENT, "code": done.exit_code}
    return {**found, **failed} if done.exit_code else {**found, "result": EQUAL, "code": 0}


def report_rebuilds(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Create the artifact `rebuild` with the result of each version."""
    artifacts.write_text(markdown(found), "rebuild", "Versions that were rebuilt")


def require_all_equal(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Fail where a version differs or could not be rebuilt."""
    others = {name: each for name, each in found.items() if each["result"] != EQUAL}
    if others:
        named = ", ".join(f"{name} {_why(each)}" for name, each in others.items())
        first = min(others.values(), key=lambda each: each["result"] != DIFFERENT)
        raise StageFailed("rebuild", first["code"], f"{named}; see the artifact `rebuild`")


def markdown(found: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of the versions, with the causes of each difference."""
    rows = []
    for name, each in found.items():
        rows.append((name, each["result"], _causes(each)))
    title = f"# {len(found)} version{'' if len(found) == 1 else 's'} rebuilt"
    return "\n".join([title, "", *markdown_table(("version", "result", "cause"), rows)]) + "\n"


def _why(found: Mapping[str, Any]) -> str:
    causes = " ".join(_causes(found).split())
    return f"{found['result']} ({causes})" if causes else str(found["result"])


def _causes(found: Mapping[str, Any]) -> str:
    causes = [f"{cause['kind']}: {cause['what']}" for cause in found.get("causes", [])]
    return "; ".join(causes) or str(found.get("message", ""))
