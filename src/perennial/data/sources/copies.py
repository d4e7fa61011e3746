"""Local copies of a source's objects, so that a run fetches only new objects."""

import logging
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from perennial.base import files
from perennial.base.storage import Entry
from perennial.data.downloads.progress_bar import progress_bar
from perennial.data.sources.listing import Listed, Listing
from perennial.data.sources.origin import Origin

log = logging.getLogger(__name__)
THREADS = 16  # concurrent requests: for small objects, latency is the limit, not this machine
COPY = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})")  # version of the object, SHA-256 of its content


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
