"""Tell requests that a browser sends for a page of another site from those of programs and of our own pages.

Any page that a person visits may let the browser post to servers that only this browser reaches. The browser
says so in headers that no page can change; programs send none of them.
Source: Fetch Metadata Request Headers (W3C); RFC 6454 (Origin).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")
READING = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, kw_only=True)
class Origins:
    """Which pages may post.

    `loopback`: the server is reached from this machine alone, so that a page with a name is not our own: its
    name may have been pointed here (DNS rebinding).
    """

    allowed: frozenset[str] = frozenset()  # such as https://shop.example
    loopback: bool = False

    def refuses(self, method: str, headers: Mapping[str, str]) -> bool:
        """Whether a request changes something for a foreign page."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if method in READING or origin in self.allowed:
            return False
        if site is not None:
            return site not in {"same-origin", "none"}
        if origin is None:
            return False
        page = urlsplit(origin)
        foreign = page.netloc != headers.get("host")
        return foreign or (self.loopback and page.hostname not in LOOPBACK)
