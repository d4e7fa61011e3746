"""Specification of a download: expected file, recorded digests, limits, URLs that are safe to log."""

import logging
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from perennial import files
from perennial.errors import redacted

log = logging.getLogger(__name__)

RECOMPRESSED_TIMES = 16  # how much larger than the published file another compression of it may be


@dataclass(frozen=True, kw_only=True)
class FileSpec:
    """Expected name, size and digest of a file. Without a digest the first download is trusted."""

    name: str
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None  # used where there is no sha256
    content_sha256: str | None = None  # of the decompressed content of a gzip file
    version: str | None = None  # the ETag, else the Last-Modified, that the server must send with it

    @property
    def digest(self) -> str | None:
        """The digest to compare with, and its algorithm; None where there is none."""
        if self.sha256:
            return f"sha256 {self.sha256}"
        return f"md5 {self.md5}" if self.md5 else None

    @property
    def exact_bytes(self) -> int | None:
        """The required size; None where another compression may change it."""
        return None if self.content_sha256 else self.bytes

    @property
    def max_bytes(self) -> int | None:
        """The size beyond which reading stops; None where the size is unknown."""
        if self.bytes is None or not self.content_sha256:
            return self.bytes
        return self.bytes * RECOMPRESSED_TIMES

    def __str__(self) -> str:
        size = "" if self.bytes is None else f"{self.bytes:,} bytes, "
        return f"{self.name} ({size}{self.digest or 'without a known digest'})"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the download of one file. Each ends a kind of hanging that the others do not."""

    connect_s: float = 10  # a connection and, for https, its handshake
    stall_s: float = 30  # without a byte
    min_bytes_per_s: int = 1000  # on average over rate_window_s
    rate_window_s: float = 30
    total_s: float = 2 * 3600  # one file: all mirrors and tries together
    tries: int = 5  # per mirror; a try that received progress_bytes does not count
    progress_bytes: int = 1 << 20
    backoff_first_s: float = 0.5  # doubled with every try
    backoff_max_s: float = 30
    retry_after_max_s: float = 60  # of the time that a server requests
    redirects: int = 5


LIMITS = Limits()


def public_url(url: str) -> str:
    """Return a URL without user, password, query and fragment: safe to log."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return redacted(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def recorded_digest(file: Path, url: str) -> str | None:
    """Return the sha256 that the first download from a URL had; None before the first.

    `file` is tracked by Git: the digest of a first, trusted download pins all later ones.
    """
    digests: dict[str, str] = files.read_json(file) if file.exists() else {}
    return digests.get(url)


def record_digest(file: Path, url: str, digest: str) -> None:
    """Add the sha256 of a first download to the file of digests."""
    digests = files.read_json(file) if file.exists() else {}
    files.write_json(file, {**digests, url: digest})
    log.info("recorded the sha256 of %s in %s; commit that file", url, file)
