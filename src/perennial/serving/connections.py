"""Connections whose clients send or read slowly, or not at all: bounded in time, memory and number.

Uvicorn lacks time limits for heads and for clients that do not read, turns between connections, and a limit on
their number that idle ones cannot reach.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from perennial.serving.requests import ServingLimits

CONNECTIONS = 1000  # at most; then those that wait longest without a request are closed, and others get 503
HEAD_BYTES = 8 << 10  # of a request's head; one of many short headers takes the parser some milliseconds
READ_BYTES = 64 << 10  # of a body at a time
EVENTS = 4  # parts of a body or requests of a connection before others have their turn
BOTH_LENGTHS = {b"content-length", b"transfer-encoding"}

Waiting = dict["Connection", None]  # connections without a request, in the order in which they began to wait


class Parser(h11.Connection):
    """A parser of requests that takes a break after some events: a chunked body may have one for each byte."""

    remaining = EVENTS

    def next_event(self) -> Any:
        """Parse the next event; `NEED_DATA` also if a break is due.

        Raises:
            h11.RemoteProtocolError: it is no valid request, or a proxy may see another end of its body.
        """
        if not self.remaining:
            return h11.NEED_DATA
        self.remaining -= 1
        event = super().next_event()
        if isinstance(event, h11.Request) and BOTH_LENGTHS.issubset(name for name, _ in event.headers):
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding in one request")
        return event


class Connection(H11Protocol):
    """Uvicorn's connection with limits.

    It is closed if the head of the next request does not arrive in `limits.head_s`, or if the client does not
    read a response in `limits.response_s`.
    """

    def __init__(self, *args: Any, limits: ServingLimits, waiting: Waiting, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn: Parser = Parser(h11.SERVER, HEAD_BYTES)
        self._limits, self._waiting = limits, waiting
        self._unread: asyncio.TimerHandle | None = None
        self._break = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request; close another connection if there are too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` as soon as the client does not read
        self._expect_head()
        if len(self.connections) > CONNECTIONS:
            longest = next(iter(self._waiting))
            if longest is not self or len(self.connections) > 2 * CONNECTIONS:
                self._waiting.pop(longest)
                longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._waiting.pop(self, None)
        self._read()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle some of the events that were received; the rest after those of other connections."""
        self.conn.remaining = EVENTS
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._waiting.pop(self, None)
        # asyncio's transports read this many bytes at a time; a head must not be longer.
        self.transport.max_size = READ_BYTES if self.conn.their_state is h11.SEND_BODY else HEAD_BYTES  # type: ignore[attr-defined]
        if self.transport.is_closing():
            return
        # A change takes a system call, after which this thread waits for Python's lock: not one for each break.
        if not self.conn.remaining:
            self.transport.pause_reading()
            if not self._break:
                self._break = True
                self.loop.call_soon(self._continue)
        elif not self._break and not self.flow.read_paused:
            self.transport.resume_reading()

    def _continue(self) -> None:
        self._break = False
        if not self.transport.is_closing():
            self.handle_events()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._expect_head()

    def _expect_head(self) -> None:
        self._waiting[self] = None
        self.loop.call_later(self._limits.head_s, self._close_unless_head, self.cycle)

    def _close_unless_head(self, last: object) -> None:
        if self.cycle is last and not self.transport.is_closing():
            self.transport.close()

    def pause_writing(self) -> None:
        """Give the client time to read what was sent."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.response_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on, since the client has read all of it."""
        super().resume_writing()
        self._read()

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
