"""Which failures are worth another try, and how often one is made."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE  # DVC is the cache
from prefect.client.schemas.objects import State
from prefect.task_engine import TaskRunTimeoutError

from perennial.base import failures
from perennial.base.errors import Failure
from perennial.orchestration.work.stage_failures import StageFailed

MINUTE_S, HOUR_S = 60, 3600
GATE_TRIES = 5  # another run may promote its model between the gate and the push
# Not what a person must change first, and not a bug: both end the same way again.
RETRIED = (Failure.NETWORK, Failure.DISK, Failure.INTERRUPTED, Failure.OUTSIDE)
P = ParamSpec("P")
T = TypeVar("T")


async def worth_retrying(task: object, run: object, state: State[Any]) -> bool:  # noqa: ARG001 - Prefect's signature
    """Whether a failed stage or command is worth retrying."""
    try:
        await state.aresult()
    except TaskRunTimeoutError:  # another try would hang for as long
        return False
    except StageFailed as error:
        return error.kind in RETRIED
    except Exception as error:  # noqa: BLE001 - of the task itself
        return failures.kind(error) in RETRIED
    return False


def once(
    timeout_s: int | None = None, task_run_name: str | None = None
) -> Callable[[Callable[P, T]], Task[P, T]]:
    """Decorate a function as a task that is not retried."""
    return task(timeout_seconds=timeout_s, task_run_name=task_run_name, cache_policy=NO_CACHE)


def retried(timeout_s: int | None = None) -> Callable[[Callable[P, T]], Task[P, T]]:
    """Decorate a function as a task that is retried if a retry can help."""
    return task(
        retries=2,
        retry_delay_seconds=[10, MINUTE_S],
        retry_condition_fn=worth_retrying,
        timeout_seconds=timeout_s,
        cache_policy=NO_CACHE,
    )
