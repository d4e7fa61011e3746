"""Origins of a source: a folder or one file in S3 or on this machine, or one file on a web server."""

import re
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perennial.base.errors import DataError, PerennialError
from perennial.base.storage import Entry, Store, open_store
from perennial.data.archives.write import ARCHIVES
from perennial.data.downloads.connection import Client, credentials_for, status_failure
from perennial.data.downloads.fetch import Fetcher, Unavailable
from perennial.data.downloads.http import HEADERS, content_length
from perennial.data.downloads.spec import LIMITS, Failure, FileSpec, TransferLimits


def open_origin(url: str, limits: TransferLimits = LIMITS) -> "Origin":
    """Return the origin that `dataset.url` names."""
    if is_web(url):
        return WebFile(url, limits)
    if is_archive(url):
        parent, slash, name = url.rstrip("/").rpartition("/")
        return Stored(open_store(parent or slash or "."), name)
    return Stored(open_store(url))


def is_web(url: str) -> bool:
    """Whether a URL names a file on a web server."""
    return re.match("https?://", url, re.IGNORECASE) is not None


def is_archive(url: str) -> bool:
    """Whether a URL names one archive instead of a folder, by its suffix."""
    return urlsplit(url).path.lower().endswith(ARCHIVES) if is_web(url) else url.lower().endswith(ARCHIVES)


class Stored:
    """All objects of a store, or one of them. Any thread may call `get`."""

    def __init__(self, store: Store, name: str | None = None) -> None:
        self._store, self._name = store, name

    def list(self) -> Iterator[Entry]:
        """Yield the current objects of the source."""
        found = self._store.list(self._name or "")
        yield from found if self._name is None else (entry for entry in found if entry.key == self._name)

    def get(self, entry: Entry, file: Path) -> None:
        """Write an object to a file."""
        self._store.get(entry.key, file, if_match=entry.etag, size=entry.size)

    def stop(self) -> None:
        """Make running calls end soon with an error."""
        self._store.stop()


class WebFile:
    """One file on a web server. A changed ETag, or else a changed time or length, marks a new version."""

    def __init__(self, url: str, limits: TransferLimits) -> None:
        self._url, self._limits = url, limits
        self._folder, _, name = url.rpartition("/")
        self._name = unquote(name)

    def list(self) -> Iterator[Entry]:
        """Yield the file, by one request for its headers."""
        deadline_s = time.monotonic() + self._limits.total_s
        client = Client(limits=self._limits, deadline_s=deadline_s, credentials=credentials_for(self._url))
        try:
            with client.get(self._url, HEADERS, method="HEAD") as response:
                if response.status != HTTPStatus.OK:
                    raise status_failure(response.status, response.headers)
                headers = response.headers
        except Failure as failure:
            kind = PerennialError if failure.temporary else DataError
            raise kind(f"{self._url}: {failure}; nothing was fetched") from failure
        size, version = content_length(headers), headers.get("ETag") or headers.get("Last-Modified")
        if size is None or version is None:
            missing = "Content-Length" if size is None else "ETag or Last-Modified"
            raise DataError(f"{self._url}: the server sends no {missing}, so changes cannot be detected")
        yield Entry(key=self._name, size=size, etag=version)

    def get(self, entry: Entry, file: Path) -> None:
        """Write the file; an interrupted transfer resumes."""
        fetcher = Fetcher(
            mirrors=[f"{self._folder}/"],
            folder=file.parent,
            limits=self._limits,
            credentials=credentials_for(self._url),
        )
        spec = FileSpec(name=self._url.rpartition("/")[2], bytes=entry.size, version=entry.etag)
        try:
            fetcher.fetch(spec).replace(file)
        except Unavailable as error:
            kind = PerennialError if error.temporary else DataError
            raise kind(f"{self._url} was not fetched:{error}") from error

    def stop(self) -> None:
        """Do nothing: requests have deadlines and end with the process."""


Origin = Stored | WebFile
