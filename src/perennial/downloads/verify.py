"""Verification of files, and the ways in which a download fails."""

import gzip
import hashlib
import zlib
from pathlib import Path

from perennial import files
from perennial.downloads.spec import FileSpec
from perennial.errors import PerennialError

# A real file of images decompresses to a few times its size, a bomb to a thousand times.
MAX_DECOMPRESSED_TIMES = 200
GZIP_MAGIC = b"\x1f\x8b"
SHOWN_BYTES = 24


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
    """Return whether a file exists and has the expected digest.

    Raises:
        PerennialError: it cannot be read, or is a folder.
    """
    if spec.digest is None:
        return False
    try:
        if file.is_dir():
            raise PerennialError(f"{file.absolute()}: expected a file, got a folder; move it away")
        exists = file.exists()
    except OSError as error:
        raise PerennialError(f"{file.absolute()}: {error.strerror}") from error
    return exists and mismatch(file, spec) is None


def mismatch(file: Path, spec: FileSpec) -> str | None:
    """Describe how the size, digest and type of a file differ from the expected ones; None for a valid file.

    Raises:
        PerennialError: it cannot be read.
    """
    try:
        size, digest = file.stat().st_size, _digest(file, spec)
        if spec.digest is None or digest == spec.digest:
            return None
        if spec.content_sha256 and _content_sha256(file, spec) == spec.content_sha256:
            return None
        start = unexpected_start(file)
    except OSError as error:
        raise PerennialError(f"{file.absolute()}: {error.strerror}; cannot be read") from error
    sizes = f"; {size:,} bytes, expected {spec.bytes:,}" if spec.bytes not in {None, size} else ""
    return f"{digest}, expected {spec.digest}{sizes}{start}"


def _digest(file: Path, spec: FileSpec) -> str:
    """The digest of a file, by the algorithm of the expected one."""
    if spec.sha256 or not spec.md5:
        return f"sha256 {files.sha256(file)}"
    return f"md5 {files.md5(file)}"


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
