"""Allow one run of a pipeline at a time, whoever starts it, on any number of machines, without a lease."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from httpx import HTTPError
from prefect import get_run_logger, runtime
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import Abort, ObjectNotFound, TerminationSignal
from prefect.states import Cancelled

from perennial.orchestration.guard.fence import Held, Holder, fence, repositories
from perennial.orchestration.guard.watch import Watch
from perennial.orchestration.server.server_runs import (
    DELETED,
    PIPELINE,
    POLL_S,
    Runs,
    await_server,
    is_real,
    place_in_line,
    running_since,
)
from perennial.orchestration.work.output import keep_running_without_worker
from perennial.orchestration.work.run_record import record_end

PAUSE_S = 2.0  # between setting its own state and reading others', which are visible by then
OWN_S = 60.0  # an older process of the same run saves its work and ends within this time
WhenBusy = Literal["end", "wait"]


class Stopped(Abort):
    """The run ends here. `state`: its state on the server; None if another process continues the run."""

    def __init__(self, message: str, state: State[Any] | None) -> None:
        super().__init__(message)
        self.state = state


@contextmanager
def one_at_a_time(pipeline: str = PIPELINE, when_busy: WhenBusy = "end") -> Iterator[None]:
    """Let only one run of a pipeline enter the block; others wait, or end as Cancelled with the reason.

    First in line is the run that has been Running for the longest time. The server takes the time of a state a
    moment before others can see it, so a run pauses before it checks who is first. It need not pause if no
    other run is Running or Pending: any other becomes Pending before it runs, so it comes later and sees this
    one.

    While the block runs, a thread cancels runs that become due, corrects the state of this one and stops it
    once it is cancelled.
    """
    runs, watch = Runs(pipeline), None
    with ExitStack() as stack:
        if runtime.deployment.id is not None:
            keep_running_without_worker()
        require_worth_starting()
        if running := _take_turn(stack, runs, when_busy):
            watch = stack.enter_context(Watch(runs, running, PAUSE_S))
        try:
            yield
        except TerminationSignal:
            if watch is None or watch.verdict is None:
                record_end(str(runs.id), "Stopped", "SIGTERM: it was cancelled, or its worker was stopped")
                raise
            message, state = watch.verdict
            record_end(str(runs.id), "Stopped", message)
            await_server(get_run_logger())
            raise Stopped(message, state and runs.set_state(state, force=True)) from None
        except Exception:
            await_server(get_run_logger())
            raise
        await_server(get_run_logger())


def require_worth_starting() -> None:
    """Stop if the run was cancelled while its process started."""
    if not is_real():
        return
    runs = Runs()
    before = runs.before_running()
    if before and before.type == StateType.CANCELLED:
        _end(runs, before.message or "Flow run was cancelled.")


def require_idle(pipeline: str) -> None:
    """Stop if a run of the pipeline is active in this checkout."""
    try:
        nobody = Holder("another run", "", "", str(Path.cwd()), os.getpid())
        with fence(repositories(deployed=False, server=False), pipeline, nobody):
            return
    except Held as held:
        raise Stopped(f"{_reason(held)}; this one was not started", None) from None


def _reason(held: Held) -> str:
    if held.holder is None or not held.holder.id:
        return "another run has just started"
    return running_since(f"{held.holder.run} in {held.holder.folder}", held.holder.since)


def _take_turn(stack: ExitStack, runs: Runs, when_busy: WhenBusy) -> State[Any] | None:
    """Wait until this run is first in line and holds the lock of this machine, or end it."""
    log, logged, deadline = get_run_logger(), "", time.monotonic() + OWN_S
    deployed = runtime.deployment.id is not None
    if is_real():
        _pause(runs)
    while True:
        running, reason = _place(runs) if is_real() else (None, "")
        try:
            if not reason:
                locked = repositories(deployed=deployed, server=is_real())
                stack.enter_context(fence(locked, runs.pipeline, _holder(runs)))
                return running
        except Held as held:
            reason = _reason(held)
            if held.holder and held.holder.id == str(runs.id):
                if time.monotonic() > deadline:
                    raise Stopped("an older process of this run is still running", None) from None
                time.sleep(POLL_S)
                continue
        if when_busy == "end":
            _end(runs, f"{reason}; this one was not started")
        if reason != logged:
            log.info("%s; waiting for its end", reason)
            logged = reason
        time.sleep(POLL_S)


def _pause(runs: Runs) -> None:
    """Wait until what other runs wrote before this one is visible, if there are others."""
    while True:
        try:
            before = runs.before_running()
            if before and before.type != StateType.PENDING:
                runs.line_up_again()
            if runs.others_start():
                time.sleep(PAUSE_S)
        except HTTPError:
            await_server(get_run_logger())
        else:
            return


def _place(runs: Runs) -> tuple[State[Any] | None, str]:
    """The state of this run, and the reason why it must not start; empty if it is first in line."""
    while True:
        try:
            own, others = runs.own(), runs.at_work()
        except ObjectNotFound:
            raise Stopped(DELETED, None) from None
        except HTTPError:
            await_server(get_run_logger())
            continue
        state = own.state
        if state is None or state.type in {StateType.CANCELLING, StateType.CANCELLED}:
            _end(runs, (state and state.message) or "Flow run was cancelled.")
        if state.type != StateType.RUNNING:  # marked as dead while it waited
            runs.line_up_again()
            time.sleep(PAUSE_S)
            continue
        if others and others[0].state and place_in_line(others[0]) < place_in_line(own):
            return state, running_since(others[0].name, others[0].state.timestamp)
        return state, ""


def _end(runs: Runs, reason: str) -> NoReturn:
    get_run_logger().warning(reason)
    raise Stopped(reason, runs.set_state(Cancelled(message=reason), force=True))


def _holder(runs: Runs) -> Holder:
    since = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return Holder(runs.name, str(runs.id), since, str(Path.cwd()), os.getpid())
