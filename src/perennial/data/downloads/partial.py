"""Unfinished downloads on disk, and attempts to complete them over HTTP or from a local folder.

Bytes are appended only to the same version of the same file. Source: RFC 9110, sections 13.1.5 (If-Range),
14.4 (Content-Range) and 15.3.7 (206).
"""

import errno
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pydantic import ValidationError

from perennial.base import files
from perennial.base.documents import JsonFile
from perennial.base.errors import PerennialError
from perennial.data.downloads import spec as specs
from perennial.data.downloads.connection import HEADERS, Client, Response, content_length, status_failure
from perennial.data.downloads.progress_bar import progress_bar
from perennial.data.downloads.spec import ChangedFile, FileSpec, PermanentFailure, TemporaryFailure, WrongBytes

# Some servers declare gzip for a file that is gzip itself; any other encoding is not the file.
GZIP_NAMES = (".gz", ".tgz")
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFull(PerennialError):
    """The disk, a quota or a limit on file sizes accepts no more bytes."""


def require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse a download that does not fit on the disk."""
    usage = shutil.disk_usage(folder)
    # Some network file systems report a size of 0.
    if usage.total and usage.free < needed_bytes:
        raise DiskFull(
            f"{folder.absolute()} needs {needed_bytes:,} bytes, has {usage.free:,} free; "
            "make room and run this again"
        )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert errors of the file system while the block runs."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in FULL:
            raise DiskFull(
                f"{path.absolute()} cannot be written: {reason}; the partial file was removed; "
                "make room and run this again"
            ) from error
        raise PerennialError(f"{path.absolute()}: {reason}; nothing was replaced") from error


class FileVersion(JsonFile, extra="forbid"):
    """Version of a file on a server."""

    url: str  # without secrets
    etag: str | None = None
    last_modified: str | None = None
    total: int | None = None  # bytes

    @property
    def validator(self) -> str | None:
        """The value for If-Range (RFC 9110, 13.1.5); a weak ETag is none, nor is a date beside it."""
        if self.etag is not None:
            return self.etag if re.fullmatch('"[^"]*"', self.etag) else None
        return self.last_modified


class Partial:
    """`<name>.part` and `<name>.part.json`, which outlive the process. The caller holds the file's lock."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.part"
        self._version = folder / f"{name}.part.json"
        self._rejected = folder / f"{name}.rejected"
        self._stream: FileIO | None = None
        self.size = self.file.stat().st_size if self.file.is_file() else 0
        self.received_bytes = 0  # by this process
        self.resumed_from: int | None = None  # None: all bytes come from one response

    def version(self, url: str) -> FileVersion | None:
        """Return the version of the received bytes; None where only a fresh start is safe."""
        try:
            version = FileVersion.model_validate_json(self._version.read_bytes())
        except (OSError, ValidationError):
            return None
        if version.url != url or not self.size:
            return None
        resumable = version.validator and (version.total is None or self.size < version.total)
        return version if resumable or self.size == version.total else None

    def begin(self, version: FileVersion) -> None:
        """Start from the first byte. Empties the file first: a kill never pairs old bytes with it."""
        self._open("wb")
        self.size, self.resumed_from = 0, None
        with disk_errors(self._version):
            files.write_json(self._version, version.model_dump())

    def resume(self) -> None:
        """Open the file for appending."""
        self._open("ab")
        self.resumed_from = self.size

    def append(self, piece: bytes) -> None:
        """Write without a buffer, so that a kill loses no received byte."""
        try:
            with disk_errors(self.file):
                rest = memoryview(piece)
                while rest and self._stream is not None:
                    rest = rest[self._stream.write(rest) or 0 :]
        except DiskFull:
            self.discard()
            raise
        self.size += len(piece)
        self.received_bytes += len(piece)

    def discard(self) -> None:
        """Remove both files."""
        self.close()
        with disk_errors(self.file):
            self.file.unlink(missing_ok=True)
            self._version.unlink(missing_ok=True)
        self.size, self.resumed_from = 0, None

    def reject(self, file: Path | None = None) -> Path:
        """Keep wrong bytes (of the partial file by default) as `<name>.rejected`, instead of earlier ones."""
        self.close()
        with disk_errors(self._rejected):
            (file or self.file).replace(self._rejected)
        if file is None:
            self.discard()
        return self._rejected

    def commit(self, file: Path) -> None:
        """Rename the verified file to its final name, durably."""
        self.close()
        with disk_errors(file):
            files.sync(self.file)
            self.file.replace(file)
            files.sync(file.parent)
            self._version.unlink(missing_ok=True)

    def _open(self, mode: str) -> None:
        self.close()
        with disk_errors(self.file):
            self._stream = FileIO(self.file, mode)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


@dataclass(frozen=True, kw_only=True)
class Download:
    """One file from one URL, into a partial file."""

    spec: FileSpec
    url: str
    partial: Partial
    client: Client

    def attempt(self) -> None:
        """Receive the missing bytes, or all bytes if the partial file may belong to another version."""
        # Without a digest or version to verify it with, a download always starts from the first byte.
        verifiable = self.spec.digest or self.spec.version
        version = self.partial.version(specs.public_url(self.url)) if verifiable else None
        if version is not None and self.spec.version not in {None, version.validator}:
            version = None
        if version is not None and self.partial.size == (version.total or self.spec.exact_bytes):
            self.partial.resume()  # killed before the verification, or the server did not announce the end
        elif version is None or not self._resume(version):
            with self.client.get(self.url, HEADERS) as response:
                self._receive_all(response)

    def copy(self) -> None:
        """Copy a file:// URL."""
        source = Path(url2pathname(urlsplit(self.url).path))
        try:
            with source.open("rb") as stream:
                size = source.stat().st_size
                self.partial.begin(FileVersion(url=specs.public_url(self.url)))
                require_space(self.partial.file.parent, size)
                while piece := stream.read(files.CHUNK_BYTES):
                    self.partial.append(piece)
        except OSError as error:
            raise PermanentFailure(error.strerror or str(error)) from error

    def _resume(self, version: FileVersion) -> bool:
        """Whether the server continued the file or sent all of it."""
        headers = HEADERS | {"Range": f"bytes={self.partial.size}-", "If-Range": version.validator or ""}
        with self.client.get(self.url, headers) as response:
            total = _continued_total(version, self.partial.size, response.headers)
            if response.status == 206 and total is not None:
                self._require_not_encoded(response)
                self.partial.resume()
                self._receive(response, total)
            elif response.status in {206, 416}:
                self.partial.discard()
                return False
            else:
                self._receive_all(response)
        return True

    def _receive_all(self, response: Response) -> None:
        if response.status != 200:
            raise status_failure(response.status, response.headers)
        self._require_not_encoded(response)
        etag, last_modified = response.headers.get("ETag"), response.headers.get("Last-Modified")
        if self.spec.version not in {None, found := etag or last_modified}:
            raise ChangedFile(f"the file changed: expected version {self.spec.version}, got {found}")
        total = content_length(response.headers)
        if self.spec.digest is None and not _has_end(response):
            raise PermanentFailure("no Content-Length: a truncated file could not be detected")
        url = specs.public_url(self.url)
        self.partial.begin(FileVersion(url=url, etag=etag, last_modified=last_modified, total=total))
        self._receive(response, total)

    def _receive(self, response: Response, total: int | None) -> None:
        """Append the body; `total` is the size of the whole file, where the server announced it."""
        partial, max_bytes = self.partial, self.spec.max_bytes
        expected = total if total is not None else self.spec.exact_bytes
        if max_bytes is None or (expected or 0) <= max_bytes:
            require_space(partial.file.parent, max(0, (expected or 0) - partial.size))
        try:
            with progress_bar(self.spec.name, partial.size, expected) as advance:
                for piece in response.body:
                    partial.append(piece)
                    advance(len(piece))
                    # After the first bytes: they show whether it is an error page.
                    if max_bytes is not None and (total or partial.size) > max_bytes:
                        size = f"{total:,} bytes" if total else f"more than {max_bytes:,} bytes"
                        raise WrongBytes(f"{size}, expected {self.spec.bytes:,}")
        except TemporaryFailure as failure:
            raise self._incomplete(expected, str(failure)) from failure
        truncated = not _has_end(response) and partial.size < (self.spec.bytes or 0)
        if (total is not None and partial.size != total) or (
            truncated and not specs.is_error_page(partial.file)
        ):
            raise self._incomplete(expected or self.spec.bytes, "then the connection closed")

    def _incomplete(self, expected: int | None, reason: str) -> TemporaryFailure:
        of_expected = "" if expected is None else f" of {expected:,}"
        return TemporaryFailure(f"got {self.partial.size:,}{of_expected} bytes, {reason}")

    def _require_not_encoded(self, response: Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        gzip_file = encoding in {"gzip", "x-gzip"} and self.spec.name.endswith(GZIP_NAMES)
        if encoding != "identity" and not gzip_file:
            raise PermanentFailure(f"Content-Encoding {encoding!r}, expected identity")


def _has_end(response: Response) -> bool:
    """Whether a truncated body can be detected."""
    return content_length(response.headers) is not None or "Transfer-Encoding" in response.headers


def _continued_total(version: FileVersion, offset: int, headers: Mapping[str, str]) -> int | None:
    """Size of the whole file where a 206 continues this version exactly from the offset; else None."""
    matched = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", headers.get("Content-Range", "").strip())
    if matched is None:
        return None
    first, last, total = map(int, matched.groups())
    continues = (
        (first, last + 1) == (offset, total)
        and version.total in {None, total}
        and content_length(headers) in {None, total - first}
        # Servers repeat the validators; one that does not may have ignored If-Range.
        and headers.get("ETag") == version.etag
        and headers.get("Last-Modified", version.last_modified) == version.last_modified
    )
    return total if continues else None
