"""One HTTP request in a thread of its own, so that no server, proxy or resolver can hold the caller up.

The client's own time limits count from byte to byte, and a name look-up has none: a server that sends a byte
a second could hold it for days. Here the caller waits for what the thread has, and no longer than it wants.
"""

import os
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from queue import Empty, Full, Queue

import httpx

from perennial.downloads import addresses, failures
from perennial.downloads.failures import Failure, Passing, Refused
from perennial.downloads.limits import Deadline, Limits

CHUNKS_AHEAD = 16  # that the network may be before the disk, of 64 KiB at most
POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Request:
    """A GET without secrets in its address."""

    url: httpx.URL
    headers: Mapping[str, str]
    credentials: tuple[str, str] | None = None
    redirected: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server said; the body can be read once, as it was sent."""

    status: int
    headers: httpx.Headers
    body: Iterator[bytes]


# Status and headers, then the body in pieces; None: it ended as it should.
Message = tuple[int, httpx.Headers] | bytes | Exception | None


class _Line:
    """What the thread says to the caller."""

    def __init__(self, limits: Limits, deadline: Deadline) -> None:
        self._messages: Queue[Message] = Queue(CHUNKS_AHEAD)
        self._limits, self._deadline = limits, deadline
        self.left = threading.Event()  # by the caller

    def say(self, message: Message) -> bool:
        """Whether the caller was still there to take it."""
        while not self.left.is_set():
            try:
                self._messages.put(message, timeout=POLL_S)
            except Full:
                continue
            return True
        return False

    def head(self) -> tuple[int, httpx.Headers]:
        """The first message."""
        message = self._next(self._limits.connect_s + self._limits.stall_s)
        if not isinstance(message, tuple):
            raise TypeError(f"a body before its head: {message!r}")
        return message

    def body(self) -> Iterator[bytes]:
        """The pieces; ends a stream that comes too slowly."""
        window_began_s, window_bytes = time.monotonic(), 0
        while isinstance(piece := self._next(self._limits.stall_s), bytes):
            yield piece
            window_bytes += len(piece)
            if (passed_s := time.monotonic() - window_began_s) >= self._limits.rate_window_s:
                if window_bytes < self._limits.least_bytes_per_s * passed_s:
                    raise Passing(
                        f"{window_bytes / passed_s:.0f} bytes/s over {passed_s:.1f} s, "
                        f"less than the {self._limits.least_bytes_per_s} that are the least"
                    )
                window_began_s, window_bytes = time.monotonic(), 0

    def _next(self, patience_s: float) -> Message:
        left_s = self._deadline.left_s()
        try:
            message = self._messages.get(timeout=min(patience_s, left_s))
        except Empty:
            message = Passing(f"not a byte for {patience_s:g} s")
        if not self._deadline.left_s():
            raise Passing(f"the {self._limits.total_s:g} s that this file may take are over")
        if isinstance(message, Exception):
            raise message
        return message


@contextmanager
def exchange(request: Request, limits: Limits, deadline: Deadline) -> Iterator[Answer]:
    """Asks and gives the answer; leaving the block ends the connection.

    Raises:
        Failure: no answer, or the body broke off or came too slowly.
    """
    line = _Line(limits, deadline)
    threading.Thread(target=_talk, args=(request, limits, line), daemon=True).start()
    try:
        status, headers = line.head()
        yield Answer(status=status, headers=headers, body=line.body())
    finally:
        line.left.set()


def _talk(request: Request, limits: Limits, line: _Line) -> None:
    """What the thread does."""
    try:
        if request.redirected:
            addresses.require_ordinary_host(request.url)
        with (
            _client(limits) as client,
            client.stream("GET", request.url, headers=request.headers, auth=request.credentials) as response,
        ):
            line.say((response.status_code, response.headers))
            # Raw: a .gz file is wanted as it is, not unpacked on the way.
            if all(line.say(piece) for piece in response.iter_raw()):
                line.say(None)
    except addresses.Forbidden as error:
        line.say(Refused(str(error)))
    except Exception as error:  # noqa: BLE001  a bug too belongs to the caller, who raises it
        line.say(error if isinstance(error, Failure) else failures.of_error(error) or error)


def _client(limits: Limits) -> httpx.Client:
    """A client with the proxies and certificates that the environment names."""
    known = _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    try:
        return httpx.Client(verify=known, timeout=httpx.Timeout(limits.stall_s, connect=limits.connect_s))
    except (ValueError, ImportError) as error:
        reason = addresses.redacted(str(error))
        raise Refused(f"the proxy settings of the environment cannot be used: {reason}") from error


@cache
def _certificates(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The certificates to trust; reading them costs more than a request."""
    return httpx.create_ssl_context()
