"""Events of runs, sent by HTTP like every other request; Prefect's own client needs a WebSocket.

Heartbeats are events. Behind a proxy that passes no WebSockets none would arrive, and the server would take a
run at work for dead.
"""

import logging
import time
from functools import cached_property

import httpx
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.schemas.events import Event
from prefect.events.worker import EventsWorker, ProcessPoolForwardingEventsClient
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from perennial.base import limits

log = logging.getLogger(__name__)
TIMEOUT_S = 10.0
SILENT_S = 60.0  # without events, if the server does not answer: a run that ends waits for all events


class HttpQueue:
    """Takes events from Prefect's thread; one that the server does not take is lost, and the run goes on."""

    _silent_until = 0.0  # on the monotonic clock

    def put(self, item: tuple[str, Event]) -> None:
        """Send an event."""
        _, event = item
        if time.monotonic() < self._silent_until:
            return
        try:
            with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1}):
                self._client.request("POST", "/events", json=[event.model_dump(mode="json")])
        except httpx.HTTPError as error:
            log.debug("the event %s was not sent: %s", event.event, error)
            if isinstance(error, httpx.TimeoutException):
                self._silent_until = time.monotonic() + SILENT_S

    @cached_property
    def _client(self) -> SyncPrefectClient:
        """Made when the address of the server is known."""
        return get_client(httpx_settings={"timeout": limits.scaled(TIMEOUT_S)}, sync_client=True)


def send_by_http() -> None:
    """Let Prefect send the events of this process so."""
    # It sends those of a process pool through a queue of its choice, and takes only clients of its own.
    EventsWorker.set_client_override(ProcessPoolForwardingEventsClient, event_queue=HttpQueue())
