"""One attempt to complete a partial file over HTTP or from a local folder.

Bytes are appended only to the same version of the same file. Source: RFC 9110, sections 13.1.5 (If-Range),
14.4 (Content-Range) and 15.3.7 (206).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from perennial.base import files
from perennial.data.downloads.connection import Client, Response, status_failure
from perennial.data.downloads.partial import FileVersion, Partial, require_space
from perennial.data.downloads.progress_bar import progress_bar
from perennial.data.downloads.spec import (
    ChangedFile,
    FileSpec,
    PermanentFailure,
    TemporaryFailure,
    WrongBytes,
    is_error_page,
    public_url,
)

HEADERS = {"Accept-Encoding": "identity"}
# Some servers declare gzip for a file that is gzip itself; any other encoding is not the file.
GZIP_NAMES = (".gz", ".tgz")


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
        version = self.partial.version(public_url(self.url)) if verifiable else None
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
                self.partial.begin(FileVersion(url=public_url(self.url)))
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
        url = public_url(self.url)
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
        if (total is not None and partial.size != total) or (truncated and not is_error_page(partial.file)):
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


def content_length(headers: Mapping[str, str]) -> int | None:
    """The size that the server announces, in bytes; None where it announces none."""
    value = headers.get("Content-Length", "")
    return int(value) if re.fullmatch("[0-9]{1,18}", value) else None


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
