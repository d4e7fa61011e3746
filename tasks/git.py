"""Tasks that pin the champion before the gate and record a run after it."""

import json
from typing import Any, Literal

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from tasks.dvc import perennial

Outcome = Literal["promoted", "not promoted", "unchanged", "kept", "refused"]


@task(cache_policy=NO_CACHE)
def pin_champion(*, fetch: bool) -> str | None:
    """Version that the model will be compared with; `fetch`: ask the remote which one it is."""
    pinned = json.loads(perennial("pin", "champion", "--json", *(["--fetch"] if fetch else [])))
    version: str | None = pinned["champion"]["version"]
    get_run_logger().info("champion: %s", version or "none yet")
    return version


@task(retries=2, retry_delay_seconds=[10, 60], cache_policy=NO_CACHE)
def record() -> Outcome:
    """Commit and push of this run; `refused`: the champion changed, and the gate must run again."""
    recorded: dict[str, Any] = json.loads(perennial("record", str(flow_run.id), "--json"))
    get_run_logger().info("record: %s: %s", recorded["outcome"], recorded["message"])
    outcome: Outcome = recorded["outcome"]
    return outcome
