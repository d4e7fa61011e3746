"""Why an address did not give a file, and whether asking again may help."""

import re
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from perennial.downloads.addresses import redacted

# Request Timeout, Too Early, Too Many Requests: the server asks to come back. A part (206) that was not asked
# for is the slip of a cache on the way.
PASSING = {206, 408, 425, 429}


class Failure(Exception):
    """An address gave nothing that can be used; the text is safe to show."""

    may_pass = False

    def __init__(self, reason: str, *, retry_after_s: float = 0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Refused(Failure):
    """The answer would be the same the next time."""


class WrongBytes(Failure):
    """Something came, and it is not the file."""


class Passing(Failure):
    """The network or the server failed, which may pass."""

    may_pass = True


def of_status(status: int, headers: httpx.Headers) -> Failure:
    """What an answer without the file means."""
    if status in PASSING or status >= 500:
        return Passing(f"HTTP {status}", retry_after_s=_retry_after_s(headers.get("Retry-After", "")))
    return Refused(f"HTTP {status}")


def of_error(error: Exception) -> Failure | None:
    """What an error of the HTTP client means; None for one that is not the network's."""
    reason = redacted(str(error)) or type(error).__name__
    if for_good := _for_good(error, reason):
        return Refused(for_good)
    if isinstance(error, httpx.TimeoutException):
        return Passing(
            "no connection in time" if isinstance(error, httpx.ConnectTimeout) else "no answer in time"
        )
    return Passing(reason) if isinstance(error, httpx.TransportError) else None


def _for_good(error: Exception, reason: str) -> str | None:
    """The reason, where it will be the same the next time."""
    if certificate := _certificate_error(error):
        return f"TLS: {redacted(certificate.verify_message)}{_clock(certificate)}"
    if isinstance(error, httpx.ProxyError) and re.match("4[0-9][0-9]", reason):
        return f"the proxy answered {reason}"
    # The client reads the target of a redirect although it is not the one to follow it.
    if isinstance(error, httpx.InvalidURL) or reason.startswith("Invalid URL in location header"):
        return "redirect to something that is no address refused"
    return reason if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError) else None


def _certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The refusal of a certificate that lies below what the client raised."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _clock(error: ssl.SSLCertVerificationError) -> str:
    """This machine's time, where it may be the clock that is wrong."""
    if not re.search("expired|not yet valid", error.verify_message):
        return ""
    return f" (this machine's clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC)"


def _retry_after_s(value: str) -> float:
    """The seconds that a Retry-After header asks for, given as a number or as a date; 0 for nonsense."""
    if re.fullmatch("[0-9]{1,9}", value.strip()):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0
