"""Expected properties of a downloaded file, and their verification."""

import gzip
import hashlib
import logging
import zlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from perennial.base import documents, files, retries
from perennial.base.errors import DataError, PerennialError, redacted

log = logging.getLogger(__name__)
RECOMPRESSED_TIMES = 16  # maximum size of another compression, relative to the published file
# A real file of images decompresses to a few times its size, a decompression bomb to a thousand times.
MAX_DECOMPRESSED_TIMES = 200
GZIP_MAGIC = b"\x1f\x8b"
SHOWN_BYTES = 24


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
        times = RECOMPRESSED_TIMES if self.content_sha256 else 1
        return None if self.bytes is None else times * self.bytes

    def __str__(self) -> str:
        size = "" if self.bytes is None else f"{self.bytes:,} bytes, "
        return f"{self.name} ({size}{self.digest or 'without a known digest'})"


@dataclass(frozen=True, kw_only=True)
class TransferLimits:
    """Limits on the download of one file. Each ends a way of hanging that the others do not cover."""

    connect_s: float = 10  # a connection and, for https, its handshake
    stall_s: float = 30  # without a byte
    min_bytes_per_s: int = 1000  # on average over rate_window_s
    rate_window_s: float = 30
    total_s: float = 2 * 3600  # one file: all mirrors and tries together
    tries: int = retries.DOWNLOAD_TRIES  # per mirror; a try that received progress_bytes does not count
    progress_bytes: int = 1 << 20
    backoff_first_s: float = retries.DOWNLOAD_PAUSE_S  # doubled with every try
    backoff_max_s: float = retries.DOWNLOAD_PAUSE_MAX_S
    retry_after_max_s: float = retries.DOWNLOAD_REQUESTED_PAUSE_MAX_S  # of the time that a server requests
    redirects: int = 5


LIMITS = TransferLimits()


def public_url(url: str) -> str:
    """Return a URL without user, password, query and fragment: safe to log."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return redacted(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def record_digest(file: Path, url: str, digest: str) -> None:
    """Add the sha256 of a first download to the file of digests."""
    files.write_json(file, {**recorded_digests(file), url: digest})
    log.info("recorded the sha256 of %s in %s; commit that file", url.rpartition("/")[2], file)


def recorded_digests(file: Path) -> dict[str, str]:
    """The sha256 that the first download from each URL had, which pins all later ones."""
    if not file.exists():
        return {}
    found = documents.read_json(file, f"`git checkout -- {file}` restores it")
    if not all(isinstance(digest, str) for digest in found.values()):
        raise DataError(f"{file} holds values that are not digests; `git checkout -- {file}` restores it")
    return dict(found)


class Failure(Exception):
    """A URL gave no valid file; the message contains no secrets."""

    temporary = False

    def __init__(self, reason: str, *, retry_after_s: float = 0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class PermanentFailure(Failure):
    """A retry would fail in the same way."""


class ChangedFile(Failure):
    """The server has another version of the file; a retry needs that one's specification."""

    temporary = True


class WrongBytes(Failure):
    """The received bytes are not the file."""


class TemporaryFailure(Failure):
    """The network or the server failed; a retry may succeed."""

    temporary = True


def is_verified(file: Path, spec: FileSpec) -> bool:
    """Return whether a file exists and has the expected digest."""
    if spec.digest is None:
        return False
    try:
        if file.is_dir():
            raise PerennialError(f"{file.absolute()}: expected a file, got a folder; move it away")
        exists = file.exists()
    except OSError as error:
        raise PerennialError(f"{file.absolute()}: {error.strerror}") from error
    return exists and file_mismatch(file, spec) is None


def file_mismatch(file: Path, spec: FileSpec) -> str | None:
    """Describe how the size, digest and type of a file differ from the expected ones; None for a valid file."""
    try:
        size = file.stat().st_size
        by_md5 = spec.md5 and not spec.sha256
        digest = f"md5 {files.md5(file)}" if by_md5 else f"sha256 {files.sha256(file)}"
        if spec.digest is None or digest == spec.digest:
            return None
        if spec.content_sha256 and _content_sha256(file, spec) == spec.content_sha256:
            return None
        start = unexpected_start(file)
    except OSError as error:
        raise PerennialError(f"{file.absolute()}: {error.strerror}; cannot be read") from error
    sizes = f"; {size:,} bytes, expected {spec.bytes:,}" if spec.bytes not in {None, size} else ""
    return f"{digest}, expected {spec.digest}{sizes}{start}"


def _content_sha256(file: Path, spec: FileSpec) -> str | None:
    """Digest of the decompressed content; None for a damaged gzip file or a bomb."""
    digest, size = hashlib.sha256(), 0
    try:
        with gzip.open(file) as stream:
            while chunk := stream.read(files.CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                if size > MAX_DECOMPRESSED_TIMES * (spec.bytes or 0):
                    return None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return None
    return digest.hexdigest()


def is_error_page(file: Path) -> bool:
    """Return whether a file starts like HTML, XML or JSON."""
    return _start(file)[:1] in {b"<", b"{"}


def unexpected_start(file: Path) -> str:
    """Describe the first bytes of a wrong file for the error message; empty if they look right."""
    start = _start(file)
    gzip_expected = any(end in file.name for end in (".gz", ".tgz"))
    if not is_error_page(file) and (not gzip_expected or start.startswith(GZIP_MAGIC)):
        return ""
    shown = start[:SHOWN_BYTES].decode("ascii", "backslashreplace")
    return f"; {'not gzip, ' if gzip_expected else ''}starts with {shown!r}"


def _start(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(512).lstrip()
