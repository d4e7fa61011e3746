"""One run of a pipeline at a time on any number of machines, whoever starts it, without a lease."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

from httpx import HTTPError
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import Abort, ObjectNotFound, TerminationSignal
from prefect.states import Cancelled

from perennial.orchestration.engine import this_run
from perennial.orchestration.engine.this_run import Stopped
from perennial.orchestration.guard.fence import Held, fence, holder, repositories, running_since
from perennial.orchestration.guard.watch import Watch
from perennial.orchestration.server.server_runs import DELETED, POLL_S, Runs, await_server, place_in_line
from perennial.orchestration.steps.recording import record_end
from perennial.orchestration.work.output import keep_running_without_worker

PAUSE_S = 2.0  # between setting its own state and reading others', which are visible by then
OWN_S = 60.0  # an older process of the same run saves its work and ends within this time


class StoppedOnServer(Stopped, Abort):
    """The run ends here. `state`: its state on the server; None if another process continues the run."""

    def __init__(self, message: str, state: State[Any] | None) -> None:
        super().__init__(message)
        self.state = state


@contextmanager
def turn(pipeline: str, *, wait: bool) -> Iterator[None]:
    """Let only one run of a pipeline enter the block; others wait, or end as Cancelled with the reason."""
    # First in line is the run that has been Running for the longest time. The server takes the time of a state
    # a moment before others can see it, so a run pauses before it checks who is first. It need not pause if no
    # other run is Running or Pending: any other becomes Pending before it runs, so it comes later and sees this
    # one. While the block runs, a thread cancels runs that become due, corrects the state of this one and stops
    # it once it is cancelled.
    runs = Runs(pipeline)
    with ExitStack() as stack:
        if this_run.is_deployed():
            keep_running_without_worker()
        require_worth_starting()
        watch = stack.enter_context(Watch(runs, _take_turn(stack, runs, wait=wait), PAUSE_S))
        try:
            yield
        except TerminationSignal:
            if watch.verdict is None:
                record_end(str(runs.id), "Stopped", "SIGTERM: it was cancelled, or its worker was stopped")
                raise
            message, state = watch.verdict
            record_end(str(runs.id), "Stopped", message)
            await_server(this_run.log())
            raise StoppedOnServer(message, state and runs.set_state(state, force=True)) from None
        except Exception:
            await_server(this_run.log())
            raise
        await_server(this_run.log())


def require_worth_starting() -> None:
    """Stop if the run was cancelled while its process started."""
    runs = Runs()
    before = runs.before_running()
    if before and before.type == StateType.CANCELLED:
        _end(runs, before.message or "Flow run was cancelled.")


def _take_turn(stack: ExitStack, runs: Runs, *, wait: bool) -> State[Any]:
    """Wait until this run is first in line and holds the lock of this machine, or end it."""
    deadline, logged = time.monotonic() + OWN_S, ""
    _pause(runs)
    while True:
        running, reason = _place(runs)
        try:
            if not reason:
                locked = repositories(deployed=this_run.is_deployed(), server=True)
                stack.enter_context(fence(locked, runs.pipeline, holder()))
                return running
        except Held as held:
            reason = held.reason
            if held.holder and held.holder.id == str(runs.id):
                if time.monotonic() > deadline:
                    raise StoppedOnServer("an older process of this run is still running", None) from None
                time.sleep(POLL_S)
                continue
        if not wait:
            _end(runs, f"{reason}; this one was not started")
        if reason != logged:
            this_run.log().info("%s; waiting for its end", reason)
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
            await_server(this_run.log())
        else:
            return


def _place(runs: Runs) -> tuple[State[Any], str]:
    """The state of this run, and the reason why it must not start; empty if it is first in line."""
    while True:
        try:
            own, others = runs.own(), runs.at_work()
        except ObjectNotFound:
            raise StoppedOnServer(DELETED, None) from None
        except HTTPError:
            await_server(this_run.log())
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
    this_run.log().warning(reason)
    raise StoppedOnServer(reason, runs.set_state(Cancelled(message=reason), force=True))
