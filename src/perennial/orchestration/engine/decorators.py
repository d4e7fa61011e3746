"""Decorators that make a function a flow or a task: of Prefect where a server is set, else of this process."""

import inspect
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from perennial.base import logs
from perennial.base.errors import PerennialError
from perennial.orchestration.engine import this_run
from perennial.orchestration.engine.this_run import LocalRun

P = ParamSpec("P")
T = TypeVar("T")
AtFailure = Callable[[str, str, str], None]  # takes the id of a run, and how and why it ended
LINE_FORMAT = "%(asctime)s | %(levelname)-7s | %(task_name)s | %(message)s"
FLOW = {"task_name": "retrain"}  # of lines outside a task
log = logging.getLogger("perennial.run")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a task is carried out: its time limit, pauses before other tries, and the errors that allow one."""

    limit_s: int | None = None
    pauses_s: tuple[int, ...] = ()
    is_worth_retrying: Callable[[Exception], bool] = lambda error: False  # noqa: ARG005 - none is
    name: str | None = None  # with {parameters}; by default that of the function


class TookTooLong(PerennialError):
    """A task reached its time limit; another try would take as long."""


def flow(
    *, run_name: Callable[[], str], at_failure: AtFailure | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a flow; `at_failure` takes the id of a run that failed without a server, and how and why."""
    if this_run.has_server():  # `server_turn` records how a run ended
        return lambda function: _of_prefect(function, run_name)
    return lambda function: _local_flow(function, run_name, at_failure)


def task(policy: Policy) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a task."""
    make: Callable[..., Any] = _task_of_prefect if this_run.has_server() else _local_task
    return lambda function: make(function, policy)


def _of_prefect(function: Callable[P, T], run_name: Callable[[], str]) -> Any:
    import prefect

    from perennial.orchestration.engine import events

    events.send_by_http()

    # Without retries, whatever default the site has: tasks are tried again, by their policy. Without hooks: if
    # the run's process is gone, Prefect's worker calls them, outside the run's checkout.
    return prefect.flow(flow_run_name=run_name, retries=0, log_prints=True)(function)


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


def show_log() -> None:
    """Write the log lines of runs to standard error, unless the process has a log already."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(logs.Lines(LINE_FORMAT, "%H:%M:%S", defaults=FLOW))
    logging.basicConfig(handlers=[lines], level=logging.WARNING)
    logging.getLogger("perennial").setLevel(logging.INFO)


def _local_flow(
    function: Callable[P, T], run_name: Callable[[], str], at_failure: AtFailure | None
) -> Callable[P, T]:
    """Make a function a flow."""
    end = at_failure or (lambda *_: None)

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        show_log()
        run = LocalRun(flow=function.__name__, parameters=_parameters(function, *given, **named))
        with this_run.local(run):
            run.name = run_name()
            log.info("begins: %s", run.name)
            try:
                done = function(*given, **named)
            except Exception as error:
                end(run.id, "Failed", str(error))
                raise
            except KeyboardInterrupt:
                end(run.id, "Stopped", "it was interrupted")
                raise
            log.info("completed: %s", run.name)
        return done

    return call


def _local_task(function: Callable[P, T], policy: Policy) -> Callable[P, T]:
    """Make a function a task, which is called again after errors that may pass."""

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        name = (policy.name or function.__name__).format(**_parameters(function, *given, **named))
        run = this_run.local_run() or LocalRun(flow=name, parameters={})
        with this_run.local(run, name):
            for pause_s in (*policy.pauses_s, None):
                try:
                    with _time_limit(policy.limit_s, name):
                        return function(*given, **named)
                except Exception as error:
                    message = getattr(error, "message", error)
                    again = not isinstance(error, TookTooLong) and policy.is_worth_retrying(error)
                    if pause_s is None or not again:
                        log.error("%s", message)  # noqa: TRY400 - a bug's traceback follows at the end
                        raise
                    log.warning("%s; %s starts again in %d s", message, name, pause_s)
                time.sleep(pause_s)
                run.tries += 1
        raise AssertionError

    return call


@contextmanager
def _time_limit(limit_s: int | None, name: str) -> Iterator[None]:
    """Raise in the block once the limit has passed; only the main thread of a program can be interrupted."""
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TookTooLong(f"{name} did not end within its time limit of {limit_s:,} s, and was stopped")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _parameters(function: Callable[P, Any], *given: P.args, **named: P.kwargs) -> Mapping[str, Any]:
    bound = inspect.signature(function).bind(*given, **named)
    bound.apply_defaults()
    return bound.arguments
