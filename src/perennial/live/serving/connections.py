"""Connections whose clients send or read slowly, or not at all: uvicorn has no time limits for these."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from perennial.live.serving.requests import ServingLimits

CONNECTIONS = 1000  # at most; then others get 503
HEAD_BYTES = 8 << 10  # of a request's head
BOTH_LENGTHS = {b"content-length", b"transfer-encoding"}


class Parser(h11.Connection):
    """A parser that refuses a request whose end proxies may see at another place."""

    def next_event(self) -> Any:
        """Parse the next event."""
        event = super().next_event()
        if isinstance(event, h11.Request) and BOTH_LENGTHS.issubset(name for name, _ in event.headers):
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding in one request")
        return event


class Connection(H11Protocol):
    """Uvicorn's connection with limits.

    It is closed if the head of the next request does not arrive in `limits.head_s`, or if the client does not
    read a response in `limits.response_s`.
    """

    def __init__(self, *args: Any, limits: ServingLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn: Parser = Parser(h11.SERVER, HEAD_BYTES)
        self._limits = limits
        self._unread: asyncio.TimerHandle | None = None
        self._head_by = 0.0  # when the next head must have arrived
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` as soon as the client does not read
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for timer in filter(None, (self._unread, self._head_timer)):
            timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._expect_head()

    def _expect_head(self) -> None:
        self._head_by = self.loop.time() + self._limits.head_s
        if self._head_timer is None:
            self._close_later()

    def _close_later(self) -> None:
        # One timer for each connection: one for each request would keep all requests of the last seconds in
        # memory, and Python's garbage collection looks through them while everybody waits.
        self._head_timer = self.loop.call_at(self._head_by, self._close_unless_head)

    def _close_unless_head(self) -> None:
        self._head_timer = None
        if (self.cycle is not None and not self.cycle.response_complete) or self.transport.is_closing():
            return
        if self.loop.time() < self._head_by:
            self._close_later()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Give the client time to read what was sent."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.response_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on, since the client has read all of it."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
