"""One run of a pipeline at a time on any number of machines, whoever starts it, without a lease.

A thread beside an active run corrects its state, stops it when cancelled, and cancels runs that are due.
"""

import contextvars
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

from httpx import HTTPError
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import Abort, ObjectNotFound, TerminationSignal
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled

from perennial.orchestration.engine import this_run
from perennial.orchestration.engine.this_run import Stopped
from perennial.orchestration.guard.fence import Held, fence, holder, repositories, running_since
from perennial.orchestration.server.server_runs import (
    DELETED,
    POLL_S,
    Runs,
    await_server,
    due_now,
    in_states,
    place_in_line,
)
from perennial.orchestration.steps.recording import record_end
from perennial.orchestration.work.output import keep_running_without_worker

PERIOD_S = 3.0
LOOKS = 2  # in a row that do not find the run, after which it was deleted
CANCEL_S = 15.0  # a worker signals the run it started within this; nobody signals one whose worker is gone
PAUSE_S = 2.0  # between setting its own state and reading others', which are visible by then
OWN_S = 60.0  # an older process of the same run saves its work and ends within this time


class Watch:
    """Checks the server every few seconds during the block.

    `verdict`: why it stopped the run by SIGTERM, and the state to set; None keeps the state.
    """

    def __init__(self, runs: Runs, running: State[Any]) -> None:
        self.verdict: tuple[str, State[Any] | None] | None = None
        self._runs, self._running = runs, running
        self._reason = running_since(runs.name, running.timestamp) + "; this one was not started"
        self._cancelled_at: float | None = None
        self._over = threading.Event()
        # The settings of the flow, the server's address among them, are in its context.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=lambda: run(self._look), name="watch", daemon=True)
        self._log = logging.getLogger("prefect.flow_runs")

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            gone = 0
            while not self._over.wait(PERIOD_S) and not self.verdict:
                try:
                    self._check(self._runs.own())
                    self._cancel_due()
                    gone = 0
                except ObjectNotFound:
                    gone += 1
                    if gone == LOOKS and not self._over.is_set():
                        self._stop(DELETED, None)
                except Exception as error:  # noqa: BLE001 - the server is down, restarting or too busy
                    self._log.debug("cannot look at the runs of the server: %s", error)

    def _check(self, own: FlowRun) -> None:
        """React to a change of this run's state that someone else made."""
        state = own.state
        if state is None or state.id == self._running.id:
            self._cancelled_at = None
            return
        match state.type:
            case StateType.CANCELLING:
                self._cancelled_at = self._cancelled_at or time.monotonic()
                if time.monotonic() - self._cancelled_at >= CANCEL_S:
                    self._stop("this run was cancelled", Cancelled(message="Flow run was cancelled."))
            case StateType.CRASHED | StateType.SCHEDULED:
                self._revive()
            case _ if not self._over.is_set():
                message = f"its state was set to {state.name}"
                if state.type in {StateType.RUNNING, StateType.PENDING}:
                    message = "this run was started again elsewhere"
                self._stop(message, None)

    def _revive(self) -> None:
        """Set this run to Running again, unless another run has taken its place."""
        first, own = next(iter(self._runs.at_work()), None), None
        if first is None:
            running = self._runs.line_up_again()
            if running.type != StateType.RUNNING:  # cancelled meanwhile: the next check sees it
                return
            self._running = running
            self._over.wait(PAUSE_S)  # as at the start: what others wrote before must be visible
            first, own = next(iter(self._runs.at_work()), None), self._runs.own()
        if first and first.state and (own is None or place_in_line(first) < place_in_line(own)):
            reason = running_since(first.name, first.state.timestamp)
            self._stop(reason, Cancelled(message=f"{reason}; this run had been marked as crashed"))

    def _cancel_due(self) -> None:
        """Cancel due runs: those that catch up after a downtime, or were started while this one is active."""
        for other in (*self._runs.others(due_now()), *self._runs.others(in_states(StateType.PENDING))):
            if other.parameters.get("when_busy") != "wait":
                self._runs.set_state(Cancelled(message=self._reason), run=other.id)

    def _stop(self, message: str, state: State[Any] | None) -> None:
        self.verdict = message, state
        os.kill(os.getpid(), signal.SIGTERM)


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
        watch = stack.enter_context(Watch(runs, _take_turn(stack, runs, wait=wait)))
        try:
            yield
        except (TerminationSignal, KeyboardInterrupt):
            if watch.verdict is None:
                record_end(str(runs.id), "Stopped", "a signal: it was cancelled, or its worker was stopped")
                raise
            message, state = watch.verdict
            record_end(str(runs.id), "Stopped", message)
            await_server(this_run.log())
            raise StoppedOnServer(message, state and runs.set_state(state, force=True)) from None
        except Exception as error:
            record_end(str(runs.id), "Failed", str(error))
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
            if runs.others(in_states(StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)):
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
