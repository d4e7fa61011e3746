"""Answers to browsers, and which requests of a browser are refused: those of foreign pages.

Any page that a person visits may let the browser post to servers that only this browser reaches. The browser
says so in headers that no page can change; programs send none of them.
Source: Fetch Metadata Request Headers (W3C); RFC 6454 (Origin).
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import jinja2
import orjson
from starlette.responses import Response

from perennial.data.validation import html

LOOPBACK = ("127.0.0.1", "localhost", "::1")
READING = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'none'; img-src {images} data:; connect-src 'self'; style-src 'nonce-{nonce}'; "
    "script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


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


def page(folder: Path, *, images: str, **values: object) -> Response:
    """The page of a folder; only its own scripts run, and `images` says where its images may come from."""
    nonce = secrets.token_urlsafe(16)
    policy = {"Content-Security-Policy": POLICY.format(images=images, nonce=nonce)}
    return Response(_template(folder).render(nonce=nonce, **values), media_type="text/html", headers=policy)


@cache
def _template(folder: Path) -> jinja2.Template:
    return html.environment(folder).get_template("page.html.jinja")


def as_json(value: object, status: int = 200) -> Response:
    """A response of JSON."""
    return Response(orjson.dumps(value), status, media_type="application/json")
