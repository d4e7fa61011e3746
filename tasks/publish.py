"""Publishing: no stage of DVC, which would remove old versions before it makes a new one."""

import json
from typing import Literal

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from tasks.dvc import Outcome, StageFailed, parameters
from tasks.stages import HOUR_S, may_pass
from tasks.summary import perennial

REFUSED = 4  # the exit code of a model that is not good enough


@task(
    retries=2,
    retry_delay_seconds=[10, 60],
    retry_condition_fn=may_pass,
    timeout_seconds=HOUR_S,
    cache_policy=NO_CACHE,
)
def publish() -> Outcome | Literal["refused"]:
    """The promoted model as the current version of publish.url; a refusal is a result, as the gate's is."""
    log = get_run_logger()
    try:
        done = json.loads(perennial("publish", "--json"))
    except StageFailed as refusal:
        if refusal.exit_code != REFUSED:
            raise
        log.warning(refusal.message)
        return "refused"
    outcome: Outcome = "ran" if done["moved"] else "up to date"
    log.info("publish: %s; version %d: %s", outcome, done["version"], done["path"])
    return outcome


def wanted() -> bool:
    """Whether the parameters name a folder of versions."""
    return parameters()["publish"]["url"] is not None
