"""When bytes may be added to those of an earlier try: only to the same version of the same file.

Source: RFC 9110, sections 13.1.5 (If-Range), 14.4 (Content-Range) and 15.3.7 (206).
"""

import re
from dataclasses import dataclass

import httpx


@dataclass(frozen=True, kw_only=True)
class Version:
    """Which file the bytes are of."""

    url: str  # without secrets
    etag: str | None
    last_modified: str | None
    total: int | None  # bytes

    @property
    def proof(self) -> str | None:
        """What shows that two answers are of one version; a weak ETag does not, nor does a date beside it."""
        if self.etag is not None:
            return self.etag if re.fullmatch('"[^"]*"', self.etag) else None
        return self.last_modified


@dataclass(frozen=True, kw_only=True)
class Point:
    """A number of bytes of a version, from which to go on."""

    offset: int
    version: Version


def version_of(url: str, headers: httpx.Headers) -> Version:
    """The version that a whole answer is of."""
    return Version(
        url=url,
        etag=headers.get("ETag"),
        last_modified=headers.get("Last-Modified"),
        total=announced_bytes(headers),
    )


def announced_bytes(headers: httpx.Headers) -> int | None:
    """The size of the body that follows, where the server told."""
    value = headers.get("Content-Length", "")
    return int(value) if re.fullmatch("[0-9]{1,18}", value) else None


def conditions(point: Point) -> dict[str, str]:
    """The headers that ask for the rest, or for everything if it is another version by now."""
    return {"Range": f"bytes={point.offset}-", "If-Range": point.version.proof or ""}


def continued_to(point: Point, headers: httpx.Headers) -> int | None:
    """The size of the whole file where a 206 continues exactly from the point; else None."""
    matched = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", headers.get("Content-Range", "").strip())
    if matched is None:
        return None
    first, last, total = map(int, matched.groups())
    same = (
        (first, last + 1) == (point.offset, total)
        and point.version.total in {None, total}
        and announced_bytes(headers) in {None, total - first}
        # Servers repeat what proves the version; one that does not may have ignored If-Range.
        and headers.get("ETag") == point.version.etag
        and headers.get("Last-Modified", point.version.last_modified) == point.version.last_modified
    )
    return total if same else None
