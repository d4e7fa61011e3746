"""A thread beside an active run: corrects its state, stops it when cancelled, cancels runs that are due."""

import contextvars
import logging
import os
import signal
import threading
import time
from typing import Any

from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled

from perennial.orchestration.guard.fence import running_since
from perennial.orchestration.server.server_runs import DELETED, Runs, place_in_line

PERIOD_S = 3.0
LOOKS = 2  # in a row that do not find the run, after which it was deleted
CANCEL_S = 15.0  # a worker signals the run it started within this; nobody signals one whose worker is gone


class Watch:
    """Checks the server every few seconds during the block.

    `verdict`: why it stopped the run by SIGTERM, and the state to set; None keeps the state.
    """

    def __init__(self, runs: Runs, running: State[Any], pause_s: float) -> None:
        self.verdict: tuple[str, State[Any] | None] | None = None
        self._runs, self._running, self._pause_s = runs, running, pause_s
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
            self._over.wait(self._pause_s)  # as at the start: what others wrote before must be visible
            first, own = next(iter(self._runs.at_work()), None), self._runs.own()
        if first and first.state and (own is None or place_in_line(first) < place_in_line(own)):
            reason = running_since(first.name, first.state.timestamp)
            self._stop(reason, Cancelled(message=f"{reason}; this run had been marked as crashed"))

    def _cancel_due(self) -> None:
        """Cancel due runs: those that catch up after a downtime, or were started while this one is active."""
        for other in self._runs.due():
            if other.parameters.get("when_busy") != "wait":
                self._runs.set_state(Cancelled(message=self._reason), run=other.id)

    def _stop(self, message: str, state: State[Any] | None) -> None:
        self.verdict = message, state
        os.kill(os.getpid(), signal.SIGTERM)
