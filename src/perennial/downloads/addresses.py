"""Addresses: what may be shown of one, where a redirect may lead."""

import ipaddress
import re
import socket
from urllib.parse import urlsplit

import httpx


class Forbidden(Exception):
    """A redirect leads where none may lead; the text names the target host."""


def public(url: str) -> str:
    """An address without the secrets that may stand in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return redacted(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def redacted(text: str) -> str:
    """A text without the names, passwords and queries of the addresses in it."""
    text = re.sub(r"//[^/\s'\"]*@", "//***@", text)
    return re.sub(r"(\w://[^\s?'\"]*)\?[^\s'\"]*", r"\1?***", text)


def without_credentials(url: str) -> httpx.URL:
    """An address that is safe to log: a user and password in it are dropped."""
    return httpx.URL(url).copy_with(username=None, password=None)


def same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Whether two addresses are of one server, so that what it may know it may know again."""
    return (one.scheme, one.host, _port(one)) == (other.scheme, other.host, _port(other))


def redirected(current: httpx.URL, location: str) -> httpx.URL:
    """Where a redirect leads.

    Raises:
        Forbidden: to another protocol, or from https to http.
    """
    try:
        target = current.join(location)
    except (httpx.InvalidURL, ValueError):
        raise Forbidden("redirect to something that is no address refused") from None
    named = f"redirect to {target.scheme}://{target.host} refused"
    if target.scheme not in {"http", "https"}:
        raise Forbidden(f"{named}: only http and https are followed")
    if current.scheme == "https" and target.scheme == "http":
        raise Forbidden(f"{named}: it leads from https to http")
    return target.copy_with(username=None, password=None)


def require_ordinary_host(target: httpx.URL) -> None:
    """Refuses a redirect to a host that only this machine or its own network segment can mean.

    Raises:
        Forbidden: a link-local address (cloud machines have their secrets there) or an unspecified one.
    """
    try:
        # Also reads what a look at the text would miss: 0xA9FEA9FE, or a name for 169.254.169.254.
        found = socket.getaddrinfo(target.host, _port(target), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return  # no such host here: connecting fails too, or a proxy knows it
    for *_, address in found:
        host = ipaddress.ip_address(str(address[0]).partition("%")[0])
        host = getattr(host, "ipv4_mapped", None) or host
        if host.is_link_local or host.is_unspecified:
            raise Forbidden(
                f"redirect to {target.scheme}://{target.host} refused: {host} is link-local or unspecified"
            )


def _port(url: httpx.URL) -> int:
    return url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
