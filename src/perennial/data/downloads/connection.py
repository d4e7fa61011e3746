"""HTTP requests that no server, proxy or resolver can block: credentials, safe redirects, deadlines."""

import ipaddress
import netrc
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from perennial.base import retries
from perennial.base.errors import ConfigError, redacted
from perennial.data.downloads.spec import Failure, PermanentFailure, TemporaryFailure, TransferLimits

if TYPE_CHECKING:
    import httpx  # a quarter of a second: only where a request is made

USER, PASSWORD = "PERENNIAL_BASE_URL_USER", "PERENNIAL_BASE_URL_PASSWORD"
CREDENTIALS_HINT = (
    f"set {USER} and {PASSWORD}, or add the host to the netrc file (~/.netrc, or the one that NETRC names)"
)
HEADERS = {"Accept-Encoding": "identity"}
REDIRECTS = {301, 302, 303, 307, 308}
CHUNKS_AHEAD = 16  # of up to 64 KiB, by which the network may be ahead of the disk
POLL_S = 0.1
# A retry gets the same answer; not so with EAI_AGAIN.
UNKNOWN_HOST = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def credentials_for(base_url: str) -> tuple[str, str] | None:
    """Return user and password for a server from the environment or a netrc file; None if there are none.

    The environment comes first, then the netrc entry of the host (`default` entries are ignored: they would go
    to any server). A user and password in the URL are never used.
    """
    if urlsplit(base_url).scheme not in {"http", "https"}:
        return None
    if PASSWORD in os.environ:
        return os.environ.get(USER, ""), os.environ[PASSWORD]
    # Path.expanduser fails for a user without a home.
    file = Path(os.path.expanduser(os.environ.get("NETRC") or "~/.netrc"))  # noqa: PTH111
    try:
        # Without a name, netrc also checks the permissions of the file in the home folder.
        hosts = netrc.netrc(file if "NETRC" in os.environ else None).hosts
    except OSError:
        return None
    except (netrc.NetrcParseError, UnicodeDecodeError) as error:
        line = f", line {number}" if (number := getattr(error, "lineno", None)) else ""
        # The error's own message may hold a password.
        raise ConfigError(f"{file}{line}: not a valid netrc file, or others may read it (chmod 600)") from None
    user, _, password = hosts.get(urlsplit(base_url).hostname or "", ("", "", ""))
    return (user, password or "") if user else None


class Response(NamedTuple):
    """Status, headers and the body without decoding; the body can be read once."""

    status: int
    headers: Mapping[str, str]
    body: Iterator[bytes]


@dataclass(frozen=True, kw_only=True)
class Client:
    """HTTP client for one file, within its limits."""

    limits: TransferLimits
    deadline_s: float  # on time.monotonic()
    credentials: tuple[str, str] | None = None  # user, password

    def left_s(self) -> float:
        """Return the seconds until the deadline, 0 after it."""
        return max(0.0, self.deadline_s - time.monotonic())

    def late(self) -> TemporaryFailure:
        """Return the failure after the deadline."""
        return TemporaryFailure(f"the time limit of {self.limits.total_s:g} s for this file is exceeded")

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str], method: str = "GET") -> Iterator[Response]:
        """Send a request and follow safe redirects; only the first server receives the credentials."""
        import httpx  # noqa: PLC0415

        try:
            first = target = httpx.URL(url).copy_with(username=None, password=None)
        except httpx.InvalidURL:
            raise PermanentFailure("not a valid URL") from None
        for hop in range(self.limits.redirects + 1):
            credentials = self.credentials if _origin(target) == _origin(first) else None
            exchange = _Exchange(self, method)
            with exchange.response(target, headers, credentials, redirected=hop > 0) as response:
                if response.status not in REDIRECTS:
                    yield response
                    return
                location = response.headers.get("Location", "")
            target = redirect_target(target, location)
        raise PermanentFailure(
            f"more than {self.limits.redirects} redirects, the last to {target.scheme}://{target.host}"
        )


def redirect_target(current: "httpx.URL", location: str) -> "httpx.URL":
    """Resolve the Location of a redirect."""
    import httpx  # noqa: PLC0415

    try:
        target = current.join(location)
    except (httpx.InvalidURL, ValueError):
        raise PermanentFailure("redirect to an invalid URL refused") from None
    named = f"redirect to {target.scheme}://{target.host} refused"
    if target.scheme not in {"http", "https"}:
        raise PermanentFailure(f"{named}: only http and https are followed")
    if current.scheme == "https" and target.scheme == "http":
        raise PermanentFailure(f"{named}: it leads from https to http")
    return target.copy_with(username=None, password=None)


def _refuse_metadata_services(target: "httpx.URL") -> None:
    """Refuse link-local addresses, where clouds keep secrets, and unspecified ones; not private ones."""
    try:
        # Resolving also finds 0xA9FEA9FE and names for 169.254.169.254.
        resolved = socket.getaddrinfo(target.host, _origin(target)[2], type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return  # connecting fails too, or a proxy resolves the name
    for *_, address in resolved:
        host = ipaddress.ip_address(str(address[0]).partition("%")[0])
        host = getattr(host, "ipv4_mapped", None) or host
        if host.is_link_local or host.is_unspecified:
            raise PermanentFailure(
                f"redirect to {target.scheme}://{target.host} refused: {host} is link-local or unspecified"
            )


def _origin(url: "httpx.URL") -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme, 0)


# Status and headers, then the body in pieces; None: it is complete.
Message = tuple[int, Mapping[str, str]] | bytes | Exception | None


class _Exchange:
    """One request in its own daemon thread; the caller waits for its messages, within the limits.

    The client's own timeouts apply from byte to byte, and name resolution has none: a server that sends
    one byte a second could block it for days.
    """

    def __init__(self, client: Client, method: str) -> None:
        self._client, self._limits, self._method = client, client.limits, method
        self._messages: Queue[Message] = Queue(CHUNKS_AHEAD)
        self._abandoned = threading.Event()

    @contextmanager
    def response(
        self, url: "httpx.URL", headers: Mapping[str, str], auth: tuple[str, str] | None, *, redirected: bool
    ) -> Iterator[Response]:
        """Start the request; leaving the block closes the connection."""
        threading.Thread(target=self._run, args=(url, headers, auth, redirected), daemon=True).start()
        try:
            head = self._next(self._limits.connect_s + self._limits.stall_s)
            if not isinstance(head, tuple):
                raise TypeError(f"expected status and headers, got {head!r}")
            yield Response(*head, self._body())
        finally:
            self._abandoned.set()

    def _body(self) -> Iterator[bytes]:
        window_began_s, window_bytes = time.monotonic(), 0
        while isinstance(piece := self._next(self._limits.stall_s), bytes):
            yield piece
            window_bytes += len(piece)
            if (passed_s := time.monotonic() - window_began_s) >= self._limits.rate_window_s:
                if window_bytes < self._limits.min_bytes_per_s * passed_s:
                    raise TemporaryFailure(
                        f"{window_bytes / passed_s:.0f} bytes/s over {passed_s:.1f} s, "
                        f"below the minimum of {self._limits.min_bytes_per_s}"
                    )
                window_began_s, window_bytes = time.monotonic(), 0

    def _next(self, timeout_s: float) -> Message:
        try:
            message = self._messages.get(timeout=min(timeout_s, self._client.left_s()))
        except Empty:
            message = TemporaryFailure(f"no data for {timeout_s:g} s")
        if not self._client.left_s():
            raise self._client.late()
        if isinstance(message, Exception):
            raise message
        return message

    def _run(
        self, url: "httpx.URL", headers: Mapping[str, str], auth: tuple[str, str] | None, redirected: bool
    ) -> None:
        try:
            if redirected:
                _refuse_metadata_services(url)
            with (
                _http_client(self._limits) as client,
                client.stream(self._method, url, headers=headers, auth=auth) as response,
            ):
                self._put((response.status_code, response.headers))
                # Raw: a .gz file is stored as it is, not decompressed by the client.
                if all(self._put(piece) for piece in response.iter_raw()):
                    self._put(None)
        except Exception as error:  # noqa: BLE001  the caller raises it, a bug too
            self._put(error if isinstance(error, Failure) else _failure(error) or error)

    def _put(self, message: Message) -> bool:
        """Return whether the caller still reads."""
        while not self._abandoned.is_set():
            try:
                self._messages.put(message, timeout=POLL_S)
            except Full:
                continue
            return True
        return False


def _http_client(limits: TransferLimits) -> "httpx.Client":
    """Client with the proxies and certificates of the environment."""
    import httpx  # noqa: PLC0415

    trusted = _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    timeout = httpx.Timeout(limits.stall_s, connect=limits.connect_s)
    try:
        return httpx.Client(verify=trusted, timeout=timeout)
    except (ValueError, ImportError) as error:
        raise PermanentFailure(f"invalid proxy settings in the environment: {redacted(str(error))}") from error


@cache
def _certificates(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """Trusted certificates; reading them takes longer than a request."""
    import httpx  # noqa: PLC0415

    return httpx.create_ssl_context()


def status_failure(status: int, headers: Mapping[str, str]) -> Failure:
    """Return the failure that a response without the file means."""
    if status == 401:
        return PermanentFailure(f"HTTP 401: the server requires a user and password; {CREDENTIALS_HINT}")
    if status == 206 or retries.is_temporary(status):  # an unrequested 206: a cache on the way
        return TemporaryFailure(f"HTTP {status}", retry_after_s=_retry_after_s(headers.get("Retry-After", "")))
    return PermanentFailure(f"HTTP {status}")


def content_length(headers: Mapping[str, str]) -> int | None:
    """The size that the server announces, in bytes; None where it announces none."""
    value = headers.get("Content-Length", "")
    return int(value) if re.fullmatch("[0-9]{1,18}", value) else None


def _retry_after_s(value: str) -> float:
    """Seconds from a Retry-After header, given as a number or a date; 0 for anything else."""
    if re.fullmatch("[0-9]{1,9}", value.strip()):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0


def _failure(error: Exception) -> Failure | None:
    """The failure that an error of the HTTP client means; None for a bug."""
    import httpx  # noqa: PLC0415

    reason = redacted(str(error)) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:  # those too that the client hides
        if isinstance(cause, socket.gaierror) and cause.errno in UNKNOWN_HOST:
            return PermanentFailure("the host is not known: the address is wrong, or there is no network")
        if isinstance(cause, ssl.SSLCertVerificationError):
            message, clock = redacted(cause.verify_message), ""
            if re.search("expired|not yet valid", message):
                clock = f" (clock of this machine: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC)"
            return PermanentFailure(f"TLS: {message}{clock}")
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ProxyError) and re.match("4[0-9][0-9]", reason):
        return PermanentFailure(f"the proxy responded {reason}")
    # The client parses the target of a redirect even when it does not follow it.
    if isinstance(error, httpx.InvalidURL) or reason.startswith("Invalid URL in location header"):
        return PermanentFailure("redirect to an invalid URL refused")
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return PermanentFailure(reason)
    if isinstance(error, httpx.TimeoutException):
        reason = type(error).__name__
    return TemporaryFailure(reason) if isinstance(error, httpx.TransportError) else None
