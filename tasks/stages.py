"""One task a stage: what may be retried, how long it may take, which machine it needs."""

from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE  # DVC is the cache
from prefect.client.schemas.objects import State

from tasks.dvc import Outcome, Refused, StageFailed, reproduce
from tasks.logs import hide_stage_tracebacks

hide_stage_tracebacks()
MINUTE_S, HOUR_S = 60, 3600
# Wrong parameters, wrong data and a bad model stay wrong; a network, a full disk and a signal may pass.
PASSING_CODES = (1, 75)


async def may_pass(task: object, run: object, state: State[Any]) -> bool:  # noqa: ARG001 - Prefect passes all three
    """Whether the failure of a stage is one that another try may not meet."""
    try:
        await state.aresult()
    except Refused:
        return False
    except StageFailed as error:
        return error.exit_code in PASSING_CODES
    except Exception:  # noqa: BLE001 - whatever else went wrong was not the stage's verdict
        return True
    return False


@task(
    retries=2,
    retry_delay_seconds=[10, 60],
    retry_condition_fn=may_pass,
    timeout_seconds=6 * HOUR_S,
    cache_policy=NO_CACHE,
)
def download() -> Outcome:
    """Original files, verified."""
    return _run("download")


@task(timeout_seconds=6 * HOUR_S, cache_policy=NO_CACHE)
def convert() -> Outcome:
    """TFRecord shards with their manifest."""
    return _run("convert")


@task(timeout_seconds=6 * HOUR_S, cache_policy=NO_CACHE)
def validate() -> Outcome:
    """The report that every record is sound."""
    return _run("validate")


@task(
    tags=["gpu"],
    retries=1,
    retry_delay_seconds=MINUTE_S,
    retry_condition_fn=may_pass,
    timeout_seconds=48 * HOUR_S,
    cache_policy=NO_CACHE,
)
def train() -> Outcome:
    """The trained model."""
    return _run("train")


@task(
    tags=["gpu"],
    retries=1,
    retry_delay_seconds=MINUTE_S,
    retry_condition_fn=may_pass,
    timeout_seconds=6 * HOUR_S,
    cache_policy=NO_CACHE,
)
def evaluate() -> Outcome:
    """Scores on test."""
    return _run("evaluate")


@task(
    tags=["gpu"],
    retries=1,
    retry_delay_seconds=MINUTE_S,
    retry_condition_fn=may_pass,
    timeout_seconds=24 * HOUR_S,  # each form is asked about every test example
    cache_policy=NO_CACHE,
)
def export() -> Outcome:
    """The SavedModel."""
    return _run("export")


@task(timeout_seconds=10 * MINUTE_S, cache_policy=NO_CACHE)
def gate() -> Outcome:
    """The decision."""
    return _run("gate")


def _run(stage: str) -> Outcome:
    log = get_run_logger()
    outcome = reproduce(stage, log.info)
    log.info("%s: %s", stage, outcome)
    return outcome
