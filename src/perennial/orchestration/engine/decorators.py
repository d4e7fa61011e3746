"""Decorators that make a function a flow or a task: of Prefect where a server is set, else of this process."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from perennial.orchestration.engine import local_runs, this_run
from perennial.orchestration.engine.local_runs import AtFailure, Policy

P = ParamSpec("P")
T = TypeVar("T")


def flow(
    *, run_name: Callable[[], str], at_failure: AtFailure | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a flow; `at_failure` takes the id of a run that failed, and how and why it ended."""
    make: Callable[..., Any] = _of_prefect if this_run.has_server() else local_runs.flow
    return lambda function: make(function, run_name, at_failure)


def task(policy: Policy) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a task."""
    make: Callable[..., Any] = _task_of_prefect if this_run.has_server() else local_runs.task
    return lambda function: make(function, policy)


def _of_prefect(function: Callable[P, T], run_name: Callable[[], str], at_failure: AtFailure | None) -> Any:
    import prefect

    from perennial.orchestration.engine import events

    events.send_by_http()

    def record(flow: object, run: Any, state: Any) -> None:  # noqa: ARG001 - Prefect's signature
        # For a run whose process is gone, Prefect's worker calls it outside the run's checkout.
        if at_failure:
            at_failure(str(run.id), state.name or "", state.message or "")

    hooks: Any = {"on_failure": [record], "on_crashed": [record]} if at_failure else {}
    # Without retries, whatever default the site has: tasks are tried again, by their policy.
    return prefect.flow(flow_run_name=run_name, retries=0, log_prints=True, **hooks)(function)


def _task_of_prefect(function: Callable[P, T], policy: Policy) -> Any:
    import prefect
    from prefect.cache_policies import NO_CACHE  # DVC is the cache
    from prefect.task_engine import TaskRunTimeoutError

    async def worth_retrying(task: object, run: object, state: Any) -> bool:  # noqa: ARG001 - Prefect's signature
        try:
            await state.aresult()
        except TaskRunTimeoutError:  # another try would hang for as long
            return False
        except Exception as error:  # noqa: BLE001 - of the task itself
            return policy.is_worth_retrying(error)
        return False

    return prefect.task(
        task_run_name=policy.name,
        timeout_seconds=policy.limit_s,
        retries=len(policy.pauses_s),
        retry_delay_seconds=list(policy.pauses_s),
        retry_condition_fn=worth_retrying,
        cache_policy=NO_CACHE,
    )(function)
