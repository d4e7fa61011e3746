"""Carry out flows and tasks in this process, without a server."""

import inspect
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from perennial.base import logs
from perennial.base.errors import PerennialError
from perennial.orchestration.engine import this_run
from perennial.orchestration.engine.this_run import LocalRun, Stopped

T = TypeVar("T")
Arguments = tuple[Sequence[Any], Mapping[str, Any]]  # by place, and by name
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


def show_log() -> None:
    """Write the log lines of runs to standard error, unless the process has a log already."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(logs.Lines(LINE_FORMAT, "%H:%M:%S", defaults=FLOW))
    logging.basicConfig(handlers=[lines], level=logging.WARNING)
    logging.getLogger("perennial").setLevel(logging.INFO)


def run_flow(
    function: Callable[..., T],
    arguments: Arguments,
    run_name: Callable[[], str],
    at_failure: Callable[[str, str, str], None] | None,
) -> T:
    """Call a flow; `at_failure` takes the run's id, and how and why it ended."""
    show_log()
    end = at_failure or (lambda *_: None)
    run = LocalRun(flow=function.__name__, parameters=_given(function, arguments))
    with this_run.local(run):
        run.name = run_name()
        log.info("begins: %s", run.name)
        try:
            done = function(*arguments[0], **arguments[1])
        except Stopped:
            raise
        except Exception as error:
            end(run.id, "Failed", str(error))
            raise
        except BaseException:
            end(run.id, "Stopped", "it was interrupted")
            raise
        log.info("completed: %s", run.name)
    return done


def run_task(function: Callable[..., T], arguments: Arguments, policy: Policy) -> T:
    """Call a task, again after errors that may pass."""
    name = (policy.name or function.__name__).format(**_given(function, arguments))
    with _at_work(name) as run:
        for pause_s in (*policy.pauses_s, None):
            try:
                with _time_limit(policy.limit_s, name):
                    return function(*arguments[0], **arguments[1])
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


@contextmanager
def _at_work(name: str) -> Iterator[LocalRun]:
    run = this_run.local_run() or LocalRun(flow=name, parameters={})
    run.task, run.tries = name, 1
    with this_run.local(run):
        try:
            yield run
        finally:
            run.task = ""


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


def _given(function: Callable[..., Any], arguments: Arguments) -> Mapping[str, Any]:
    bound = inspect.signature(function).bind(*arguments[0], **arguments[1])
    bound.apply_defaults()
    return bound.arguments
