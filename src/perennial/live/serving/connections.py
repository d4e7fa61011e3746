"""Connections whose clients send or read slowly, or not at all: bounded in time, memory and number.

Uvicorn lacks time limits for heads and for clients that do not read, turns between connections, and a limit on
their number that idle ones cannot reach.
"""

import asyncio
from collections import deque
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from perennial.live.serving.requests import ServingLimits

CONNECTIONS = 1000  # at most; then those that wait longest without a request are closed, and others get 503
HEAD_BYTES = 8 << 10  # of a request's head; one of many short headers takes the parser some milliseconds
READ_BYTES = 64 << 10  # of a body at a time
EVENTS = 4  # parts of a body or requests of a connection before others have their turn
TURNS = 16  # connections that handle what they received in one round of the event loop
ACCEPTED = 64  # connections in one round
BACKLOG = 2048  # connections that the system accepts in advance
BOTH_LENGTHS = {b"content-length", b"transfer-encoding"}

Waiting = dict["Connection", None]  # connections without a request, in the order in which they began to wait


class Turns:
    """The turns of connections: some in each round of the event loop, in which `/health` may be next."""

    def __init__(self) -> None:
        self._queue: deque[Connection] = deque()
        self._left = TURNS
        self._scheduled = False

    def take(self) -> bool:
        """Take a turn of this round; False if none is left."""
        self._schedule()
        self._left -= 1
        return self._left >= 0

    def wait(self, connection: "Connection") -> None:
        """Let a connection go on in a later round."""
        self._queue.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._scheduled = False
        self._left = TURNS
        for _ in range(min(len(self._queue), TURNS)):
            self._queue.popleft().go_on(self)
        if self._queue:
            self._schedule()


class Parser(h11.Connection):
    """A parser of requests that takes a break after some events: a chunked body may have one for each byte."""

    remaining = EVENTS

    def next_event(self) -> Any:
        """Parse the next event; `NEED_DATA` also if a break is due."""
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
    read a response in `limits.response_s`. `turns`: of heads of requests, and of all that follows a head.
    """

    def __init__(
        self, *args: Any, limits: ServingLimits, waiting: Waiting, turns: tuple[Turns, Turns], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.conn: Parser = Parser(h11.SERVER, HEAD_BYTES)
        self._limits, self._waiting = limits, waiting
        self._heads, self._bodies = turns
        self._unread: asyncio.TimerHandle | None = None
        self._head_by = 0.0  # when the next head must have arrived
        self._head_timer: asyncio.TimerHandle | None = None
        self._waits = False  # for its turn

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
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle some of the events that were received, in this connection's turn."""
        turns = self._heads if self.conn.their_state is h11.IDLE else self._bodies
        if not self._waits and turns.take():
            self._handle_some()
        else:
            self._wait_for(turns)

    def go_on(self, turns: Turns) -> None:
        """Handle some of the events in a turn that this connection waited for."""
        self._waits = False
        if not self.transport.is_closing():
            turns.take()
            self._handle_some()

    def _handle_some(self) -> None:
        self.conn.remaining = EVENTS
        super().handle_events()
        if self._answers():
            self._waiting.pop(self, None)
        # asyncio's transports read this many bytes at a time; a head must not be longer.
        self.transport.max_size = READ_BYTES if self.conn.their_state is h11.SEND_BODY else HEAD_BYTES  # type: ignore[attr-defined]
        if self.transport.is_closing():
            return
        if not self.conn.remaining:
            self._wait_for(self._bodies)
        elif not self._waits and not self.flow.read_paused:
            self.transport.resume_reading()

    def _wait_for(self, turns: Turns) -> None:
        # A change takes a system call, after which this thread waits for Python's lock: not one for each turn.
        self.transport.pause_reading()
        if not self._waits:
            self._waits = True
            turns.wait(self)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._expect_head()

    def _answers(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        if self._answers():  # the next request came before the last response was complete
            return
        self._waiting[self] = None
        self._head_by = self.loop.time() + self._limits.head_s
        if self._head_timer is None:
            self._close_later()

    def _close_later(self) -> None:
        # One timer for each connection: one for each request would keep all requests of the last seconds in
        # memory, and Python's garbage collection looks through them while everybody waits.
        self._head_timer = self.loop.call_at(self._head_by, self._close_unless_head)

    def _close_unless_head(self) -> None:
        self._head_timer = None
        if self._answers() or self.transport.is_closing():
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
        self._read()

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
