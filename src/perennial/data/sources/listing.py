"""The objects of a source: where they come from, their listing with its digest, and their local copies.

A source is a folder or one file in S3 or on this machine, or one file on a web server. A run fetches only new
objects.
"""

import hashlib
import json
import logging
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perennial.base import files
from perennial.base.errors import DataError, PerennialError
from perennial.base.storage import Entry, Store, open_store
from perennial.data.archives.safety import broken_rule, folded, hidden, leftover
from perennial.data.archives.write import ARCHIVES
from perennial.data.downloads.connection import HEADERS, Client, content_length, credentials_for, status_failure
from perennial.data.downloads.fetch import Fetcher
from perennial.data.downloads.progress_bar import progress_bar
from perennial.data.downloads.spec import LIMITS, Failure, FileSpec, TransferLimits

log = logging.getLogger(__name__)
PAGE = 1000  # objects in memory at a time
MAX_NAME_BYTES = 255  # of a path component: the limit of most file systems
THREADS = 16  # concurrent requests: for small objects, latency is the limit, not this machine
COPY = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})")  # version of the object, SHA-256 of its content
TABLES = """
    PRAGMA journal_mode = OFF;
    CREATE TABLE objects (path TEXT PRIMARY KEY, name TEXT, size INTEGER, etag TEXT, id TEXT) WITHOUT ROWID;
    CREATE TABLE names (folded TEXT PRIMARY KEY, name TEXT, folder INTEGER) WITHOUT ROWID;
    CREATE TABLE copies (id TEXT PRIMARY KEY, sha256 TEXT) WITHOUT ROWID;
"""


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
        return (each for each in self._store.list(self._name or "") if self._name in {None, each.key})

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
        self._folder, _, self._name = url.rpartition("/")

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
        yield Entry(key=unquote(self._name), size=size, etag=version)

    def get(self, entry: Entry, file: Path) -> None:
        """Write the file; an interrupted transfer resumes."""
        fetcher = Fetcher(
            mirrors=[f"{self._folder}/"],
            folder=file.parent,
            limits=self._limits,
            credentials=credentials_for(self._url),
        )
        spec = FileSpec(name=self._name, bytes=entry.size, version=entry.etag)
        (fetched,) = fetcher.fetch_all([spec])
        fetched.replace(file)

    def stop(self) -> None:
        """Do nothing: requests have deadlines and end with the process."""


Origin = Stored | WebFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An object of a source."""

    name: str  # below the URL, with `/` between its parts
    size: int  # bytes
    etag: str  # changes when the content changes
    id: str  # of this version of the object: a digest of the URL and all fields above
    sha256: str | None = None  # of the local copy, if there is one


class Listing:
    """The objects of a source, in an unnamed temporary database, so that memory does not grow."""

    def __init__(self, url: str, *, portable: bool = True) -> None:
        self.url, self.portable = url, portable
        self.objects, self.bytes = 0, 0
        self._last_folder = ""
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.executescript(TABLES)
        self._db.execute("BEGIN")

    def add(self, entry: Entry) -> None:
        """Add an object. Folder markers and files that desktops and tools leave behind are ignored."""
        name = entry.key
        if leftover(name) or (name.endswith("/") and not entry.size):
            return
        if broken := broken_rule(name, portable=self.portable):
            raise self._refused(name, broken)
        if hidden(name):
            raise self._refused(name, "it is hidden; rename it or move it away")
        if any(len(part.encode()) > MAX_NAME_BYTES for part in name.split("/")):
            raise self._refused(name, f"a part of its name has more than {MAX_NAME_BYTES} bytes")
        self._add_name(name, folder=False)
        self._add_folders(name.rpartition("/")[0])
        identity = json.dumps([self.url, name, entry.size, entry.etag])
        path = name.replace("\1", "\1\2").replace("/", "\1")  # keeps the objects of a folder together
        row = (path, name, entry.size, entry.etag, hashlib.sha256(identity.encode()).hexdigest())
        self._db.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?)", row)
        self.objects += 1
        self.bytes += entry.size

    def sha256(self) -> str:
        """Return the digest of the names, sizes and ETags of all objects."""
        digest = hashlib.sha256()
        for row in self._db.execute("SELECT name, size, etag FROM objects ORDER BY path"):
            digest.update(f"{json.dumps(row)}\n".encode())
        return digest.hexdigest()

    def pages(self) -> Iterator[list[Listed]]:
        """Yield the objects in pages, sorted by folder, then by name, with the digests of their copies."""
        last = ""
        while page := self._db.execute(
            "SELECT path, name, size, etag, id, sha256 FROM objects LEFT JOIN copies USING (id) "
            "WHERE path > ? ORDER BY path LIMIT ?",
            (last, PAGE),
        ).fetchall():
            yield [Listed(name=row[1], size=row[2], etag=row[3], id=row[4], sha256=row[5]) for row in page]
            last = page[-1][0]

    def record(self, identity: str, sha256: str) -> None:
        """Record the local copy of this version of an object."""
        self._db.execute("INSERT OR REPLACE INTO copies VALUES (?, ?)", (identity, sha256))

    def names_version(self, identity: str) -> bool:
        """Whether the source holds this version of an object now."""
        return self._db.execute("SELECT 1 FROM objects WHERE id = ?", (identity,)).fetchone() is not None

    def close(self) -> None:
        """Remove the database."""
        self._db.close()

    def _add_folders(self, folder: str) -> None:
        """Add the parent folders of a name, except those that the previous object shares."""
        last, self._last_folder = self._last_folder, folder
        while folder and folder != last:
            self._add_name(folder, folder=True)
            folder = folder.rpartition("/")[0]

    def _add_name(self, name: str, *, folder: bool) -> None:
        row = (folded(name) if self.portable else name, name, folder)
        if self._db.execute("INSERT OR IGNORE INTO names VALUES (?, ?, ?)", row).rowcount:
            return
        query = "SELECT name, folder FROM names WHERE folded = ?"
        other, is_folder = self._db.execute(query, row[:1]).fetchone()
        if folder != bool(is_folder):
            raise self._refused(name, "it is both a file and a folder")
        if not folder or other != name:
            raise self._refused(name, f"{other!r} has the same name up to case and normalization")

    def _refused(self, name: str, rule: str) -> DataError:
        return DataError(f"{self.url}: the object {name!r} is refused: {rule}; nothing was fetched")


class Copies:
    """Copies named by version and digest, verified before reuse: a power cut can empty a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fetch(self, listing: Listing, origin: Origin) -> None:
        """Fetch the objects that have no valid copy. After an error, fetched copies stay."""
        for path in self._present():
            if name := COPY.fullmatch(path.name):
                listing.record(name[1], name[2])
        fetched, received = 0, 0
        pool = ThreadPoolExecutor(THREADS)
        try:
            with progress_bar("fetching", 0, listing.bytes) as advance:
                for page in listing.pages():
                    copied = pool.map(partial(self._copy, origin=origin), page)
                    for listed, (sha256, new) in zip(page, copied, strict=True):
                        if new:
                            listing.record(listed.id, sha256)
                            fetched, received = fetched + 1, received + listed.size
                        advance(listed.size)
        except BaseException:
            origin.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        log.info("fetched %d of %d objects, %d bytes", fetched, listing.objects, received)

    def paths(self, listing: Listing) -> Iterator[tuple[str, Path]]:
        """Yield the name and the copy of each object, sorted by folder, then by name."""
        for page in listing.pages():
            for listed in page:
                yield listed.name, self._path(listed, listed.sha256 or "")

    def clean(self, listing: Listing) -> None:
        """Remove copies of other versions, and leftovers of killed processes."""
        for path in self._present():
            name = COPY.fullmatch(path.name)
            if name is None or not listing.names_version(name[1]):
                path.unlink()

    def _present(self) -> Iterator[Path]:
        for part in sorted(self._folder.glob("[0-9a-f][0-9a-f]")):
            with os.scandir(part) as found:
                yield from (Path(each.path) for each in found)

    def _path(self, listed: Listed, sha256: str) -> Path:
        return self._folder / listed.id[:2] / f"{listed.id}-{sha256}"

    def _copy(self, listed: Listed, origin: Origin) -> tuple[str, bool]:
        """Fetch an object unless there is a valid copy; return its digest, and whether it was fetched."""
        if listed.sha256 is not None:
            path = self._path(listed, listed.sha256)
            if files.sha256(path) == listed.sha256:
                return listed.sha256, False
            log.warning("%s: the copy of %s is damaged; fetching it again", path, listed.name)
            path.unlink()
        received = self._folder / listed.id[:2] / listed.id
        entry = Entry(key=listed.name, size=listed.size, etag=listed.etag)
        origin.get(entry, received)
        sha256 = files.sha256(received)
        received.replace(self._path(listed, sha256))
        return sha256, True
