"""`perennial serve`: the life cycle of the server, from loading the first model to the last response.

Its connections end if clients send or read slowly, or not at all: uvicorn has no time limits for these.
"""

import asyncio
import ipaddress
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from perennial.base.errors import ConfigError
from perennial.base.processes import process
from perennial.base.storage import Store
from perennial.live.capture.keeper import CaptureLimits, Keeper
from perennial.live.serving import app
from perennial.live.serving.requests import ServingLimits
from perennial.live.serving.served_version import Follower, place
from perennial.live.serving.shadow import Candidate, Shadow
from perennial.live.serving.web import Origins
from perennial.model.inference.image_inputs import PixelBudget

log = logging.getLogger(__name__)
OTHER_FILES = 500  # that a server has open besides its connections
# Time after which a computing thread yields to a responding one; Python's default of 5 ms delays responses.
SWITCH_S = 0.0002
CONNECTIONS = 1000  # at most; then others get 503
HEAD_BYTES = 8 << 10  # of a request's head
BOTH_LENGTHS = {b"content-length", b"transfer-encoding"}


class ModelServer:
    """A server on an open socket; it may keep a share of the images, and compare a candidate with the model."""

    def __init__(
        self,
        name: str,
        model: str,
        limits: ServingLimits,
        poll_s: float,
        listener: socket.socket,
        *,
        decision: Path | None = None,
        keep: tuple[Store, CaptureLimits] | None = None,
        shadow: Candidate | None = None,
    ) -> None:
        self.error: Exception | None = None
        self.idle = True  # after `run`: no thread is still running TensorFlow
        self.listener = listener
        self.service = app.Service(name, limits, lambda: self.follower.current, lambda: self.follower.rejected)
        metrics = self.service.metrics
        keeper = Keeper(*keep, name, metrics.kept) if keep else None
        if shadow:
            self.service.shadow = Shadow(shadow, metrics.shadowed, keeper)
        self.service.observers = list(filter(None, (keeper, self.service.shadow)))
        self.budget = PixelBudget(limits.pixels)
        self.follower = Follower(place(model), self.budget, poll_s, self.service.metrics.loaded, decision)
        loopback = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
        configured = uvicorn.Config(
            app.build(
                self.service,
                lambda: len(self._uvicorn.server_state.connections) > CONNECTIONS,
                Origins(allowed=limits.origins, loopback=loopback),
            ),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            http=partial(Connection, limits=limits),  # type: ignore[arg-type]  # called as a class is
            loop="asyncio",
            ws="none",
            log_level="error",  # a warning for each malformed request would fill the log
            timeout_graceful_shutdown=int(limits.drain_s),
        )
        self._uvicorn = _Uvicorn(configured)

    def run(self) -> None:
        """Answer requests until `stop`."""
        self.follower.start(self._fail)
        for observer in self.service.observers:
            observer.start(self._fail)
        try:
            self._uvicorn.run([self.listener])
        finally:
            for observer in reversed(self.service.observers):
                observer.close()
            self.idle = all((self.follower.stop(), self.service.close()))
        if self.error:
            raise self.error

    def stop(self) -> None:
        """Accept no more connections, answer pending requests, and return from `run`."""
        self._uvicorn.should_exit = True

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.stop()


class _Uvicorn(uvicorn.Server):
    """Uvicorn without its signal handlers, which would raise the signal again after the drain."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 means any free one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        listener = socket.create_server(address[:2], family=family)
        # Connections inherit TCP_NODELAY; asyncio sets it only if the socket's protocol is known. Without it, a
        # response in two packets (headers, body) would wait 40 ms for the client's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {host} port {port}: {reason}; choose others with --host and --port"
        ) from error
    return listener


def url(listener: socket.socket) -> str:
    """Return the URL of the page on a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def serve(server: ModelServer) -> None:
    """Serve until SIGTERM or SIGINT, then answer pending requests; a second signal ends at once."""
    _allow_files(2 * CONNECTIONS + OTHER_FILES)
    sys.setswitchinterval(SWITCH_S)
    log.info("listening on %s; loading the model; Ctrl-C stops the server", url(server.listener))
    with _signals(server.stop):
        server.run()
    log.info("stopped")
    if not server.idle:  # the interpreter must not exit while a thread runs TensorFlow
        os._exit(0)


def _allow_files(number: int) -> None:
    """Raise the limit of open files, often 1,024, as far as the system allows: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


@contextmanager
def _signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first signal, and end the process at a later one; Ctrl-C may arrive twice at once."""
    first: list[float] = []

    def handle(_number: int, _frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            _report(b"serve: answering pending requests; send the signal again to stop immediately\n")
            stop()
        elif time.monotonic() - first[0] > process.REPEAT_S:
            _report(b"serve: stopped immediately by a second signal\n")
            os._exit(1)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(text: bytes) -> None:
    with suppress(OSError):
        os.write(2, text)


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
