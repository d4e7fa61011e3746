"""The flow `rebuild`: find the champion, rebuild it, report the result."""

import json
from collections.abc import Mapping
from typing import Any

from perennial.base.errors import QualityError
from perennial.orchestration.engine import this_run
from perennial.orchestration.steps import artifacts
from perennial.orchestration.steps.artifacts import markdown_table
from perennial.orchestration.work.perennial_command import call_perennial, perennial
from perennial.orchestration.work.stage_failures import StageFailed


def find_champion() -> str | None:
    """The version in use; None without one."""
    listed = json.loads(perennial("versions", "--json"))
    return next((each["version"] for each in listed if each["champion"]), None)


def rebuild_version(version: str) -> dict[str, Any]:
    """The JSON of `perennial rebuild`; the lines of its log go to the log of the run."""
    done = call_perennial("rebuild", version, "--json", log=this_run.log().info)
    if not done.output.strip():
        message = done.log[-1] if done.log else f"exit code {done.exit_code}"
        raise StageFailed("rebuild", done.exit_code or 1, f"{version} was not rebuilt: {message}")
    return dict(json.loads(done.output))


def report_rebuild(version: str, found: Mapping[str, Any]) -> None:
    """Create the artifact `rebuild` with the result and its causes; fails where something differs."""
    result = "equal" if found["equal"] else "different"
    causes = "; ".join(f"{cause['kind']}: {cause['what']}" for cause in found["causes"])
    rows = markdown_table(("version", "result", "cause"), [(version, result, causes)])
    artifacts.write("\n".join(rows) + "\n", "rebuild", "The version that was rebuilt")
    if not found["equal"]:
        message = f"{version} is different ({causes}); see the artifact `rebuild`"
        raise StageFailed("rebuild", QualityError.exit_code, message)
