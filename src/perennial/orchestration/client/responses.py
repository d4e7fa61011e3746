"""What a Prefect server answers, or what answers in its place; each error names the variable and the remedy."""

import os
import re
import ssl
from html import unescape
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import httpx

from perennial.base.errors import ConfigError, Failure, PerennialError, redacted
from perennial.orchestration.client.settings import AUTH, CERTIFICATE, CSRF, EXAMPLE, HEADERS, KEY, SKIP, URL

DETAIL = 500  # characters of a message
DENIED, FORBIDDEN, PROXY_DENIED = 401, 403, 407
REFUSED = {DENIED, FORBIDDEN, PROXY_DENIED}  # whatever is asked
TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


class NoServer(ConfigError):
    """No server is set."""

    def __init__(self) -> None:
        super().__init__(
            f"{URL} is not set; it names the server, such as {EXAMPLE}, in the environment or by "
            f"`prefect config set {URL}=...`. Without a server, `perennial run` runs the pipeline, and "
            "`dvc exp run -S train.epochs=2` tries a value"
        )


class WrongServer(ConfigError):
    """What answers is no Prefect server of this version, or the settings do not fit it."""


class ServerAway(PerennialError):
    """The server does not answer, after retries; `first`: it never did, so its address may be wrong."""

    def __init__(self, where: str, problem: str, *, first: bool) -> None:
        hint = f"; start it with `prefect server start`, or correct {URL}" if first else ""
        super().__init__(f"the Prefect server does not answer at {where}: {problem}{hint}")
        self.exit_code = ConfigError.exit_code if first else PerennialError.exit_code


class ServerRefused(PerennialError):
    """The server refuses a request; a retry would not help."""

    kind = Failure.REFUSED

    def __init__(self, where: str, status: int, reason: str, url: str = "") -> None:
        hint = _hint(where, status, reason, url)
        super().__init__(f"the Prefect server refuses {where} ({status}): {reason}{hint and f'; {hint}'}")
        self.status, self.reason = status, reason
        if hint:
            self.exit_code = ConfigError.exit_code


def _hint(where: str, status: int, reason: str, url: str) -> str:
    """What to do about a refusal; empty if that is not known."""
    if status == PROXY_DENIED:
        return f"{_proxy(url) or 'a proxy'} wants a user and a password, as http://USER:PASSWORD@HOST:PORT"
    if status == FORBIDDEN and "CSRF" in reason:
        return f"set {CSRF}=true, or unset it"
    if status in {DENIED, FORBIDDEN}:
        return f"look at {AUTH}, which is USER:PASSWORD of the server, or at {KEY}{_through(url)}"
    if "HTTPS port" in reason:
        return f"{URL} must start with https://"
    if status not in {404, 405}:
        return ""
    # Every Prefect server has a search, with whatever result.
    return _without_api(url) or (f"there is no Prefect API; correct {URL}" if where.endswith("/filter") else "")


def _without_api(url: str) -> str:
    parts = urlsplit(url)
    if "/api" in parts.path or not parts.netloc:
        return ""
    return f"{URL} must end in /api: {redacted(f'{parts.scheme}://{parts.netloc}/api')}"


def parsed(answer: httpx.Response, url: str) -> Any:
    """The JSON of an answer; None if it is empty."""
    if not answer.content:
        return None
    try:
        found = answer.json()
    except ValueError:
        hint = (
            _without_api(url) or f"sign in there, or correct {URL}; {HEADERS} adds headers that a proxy wants"
        )
        raise WrongServer(
            f"{redacted(url)} answers with a page, {_title(answer)!r}, and not with Prefect's API; it may be "
            f"the sign-in page of a proxy{_through(url)}; {hint}"
        ) from None
    if answer.request.url.path.endswith("/filter") and not isinstance(found, list | dict):
        raise WrongServer(
            f"{redacted(url)} is not Prefect's API: it answers {str(found)[:80]!r}; correct {URL}"
        )
    return found


def detail(answer: httpx.Response) -> str:
    """The server's reason for refusing a request."""
    try:
        found = answer.json()
        reason = found["exception_message"] if "exception_message" in found else found["detail"]
    except (ValueError, LookupError, TypeError):
        reason = _title(answer)
    return " ".join(str(reason).split())[:DETAIL]


def _title(answer: httpx.Response) -> str:
    title = TITLE.search(answer.text)
    text = unescape(title[1]) if title else re.sub(r"<[^>]*>", " ", answer.text)
    return " ".join(text.split())[:80]


def redirected(answer: httpx.Response, path: str, url: str) -> WrongServer:
    """The error for an answer that redirects a request for this path of the API."""
    target = answer.request.url.join(answer.headers["location"])
    place, asked = redacted(str(target.copy_with(query=None))), path.partition("?")[0].strip("/")
    if target.path.rstrip("/").endswith(f"/{asked}"):
        api = place.rstrip("/").removesuffix(asked).rstrip("/")
        return WrongServer(f"{redacted(url)} redirects to {api}; set {URL}={api}")
    return WrongServer(
        f"{redacted(url)} redirects to {place}, which is not Prefect's API: it may be a sign-in page"
        f"{_through(url)}; sign in there, or correct {URL}"
    )


def require_fitting(error: httpx.TransportError, url: str) -> None:
    """Raise if a failure of the network will not pass by itself."""
    text = str(error)
    problem = ""
    if isinstance(error.__cause__, ssl.SSLError) or "SSL" in text or "CERTIFICATE" in text:
        if "CERTIFICATE_VERIFY_FAILED" in text:
            problem = (
                f"its certificate cannot be verified: {text}; name the file of its root certificate as "
                f"{CERTIFICATE}, or trust any server with {SKIP}=true"
            )
        elif "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
            problem = f"it does not speak TLS; {URL} must start with http://{_through(url)}"
    elif isinstance(error, httpx.ProxyError | httpx.UnsupportedProtocol):
        problem = f"{text}{_through(url)}"
    elif "Name or service not known" in text or "nodename nor servname" in text or "No address" in text:
        problem = f"this host is not known; correct {URL}"
    if problem:
        raise WrongServer(f"the Prefect server {redacted(url)} cannot be used: {problem}")


def described(error: httpx.TransportError, url: str) -> str:
    """A failure of the network, for a message."""
    if isinstance(error, httpx.RemoteProtocolError) and url.startswith("http://"):
        return f"{error} If it speaks TLS, {URL} must start with https://{_through(url)}"
    kind = "no answer in time" if isinstance(error, httpx.TimeoutException) else type(error).__name__
    return f"{kind}: {error}{_through(url)}" if str(error) else f"{kind}{_through(url)}"


def unusable_proxy(error: Exception, url: str) -> ConfigError:
    """The error for the address of a proxy that httpx cannot use."""
    named = [name for name in _proxies() if not isinstance(error, ImportError) or _is_socks(name)]
    variable = next(iter(named), "HTTP_PROXY")
    reason = "names a SOCKS proxy, which needs the package socksio" if _is_socks(variable) else str(error)
    return ConfigError(
        f"{variable} {reason}; `unset {variable}` for this command, or name an http:// proxy in it; "
        f"NO_PROXY={urlsplit(url).hostname} names servers that need none"
    )


def _proxies() -> dict[str, str]:
    """The variables that name a proxy, as they are spelled in the environment."""
    names = {"http_proxy", "https_proxy", "all_proxy"}
    return {name: value for name, value in os.environ.items() if name.lower() in names and value}


def _is_socks(variable: str) -> bool:
    return os.environ.get(variable, "").lower().startswith("socks")


def _proxy(url: str) -> str | None:
    """The variable that names the proxy for a URL; None if it needs none."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):  # by NO_PROXY
        return None
    wanted = (f"{parts.scheme}_proxy", "all_proxy")
    return next((name for want in wanted for name in _proxies() if name.lower() == want), None)


def _through(url: str) -> str:
    """The proxy that a request to a URL went through, for a message."""
    variable = _proxy(url)
    return (
        f" (through the proxy of {variable}; NO_PROXY={urlsplit(url).hostname} avoids it)" if variable else ""
    )
