"""What the stores in buckets have in common: retries, resumed reads, large writes in parts, and the probe.

The store of each provider adds the requests, which raise `Temporary` if another try may help.
"""

import hashlib
import io
import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, ClassVar, Protocol, TypeVar
from urllib.parse import urlsplit

from perennial.base import files, retries
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.storage import Changed, Entry, Missing
from perennial.base.storage.receive import Target, mismatch, not_following, partial_file
from perennial.base.storage.refusals import Temporary

log = logging.getLogger(__name__)
Result = TypeVar("Result")
CONNECT_S = 10
STALL_S = 30  # without a byte
PROGRESS_BYTES = 256 << 10
CHUNK_BYTES = 1 << 20
SINGLE_BYTES = 64 << 20  # larger files are written in parts
PART_BYTES = 16 << 20
PARTS = 9000  # S3 allows 10,000
CONNECTIONS = 16
PROBE = ".perennial"
PROBE_TEXT = b"perennial tests here whether this store honours conditional writes.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must hold for a write: the object has this ETag, or there is none; by default nothing."""

    etag: str | None = None
    is_new: bool = False

    def __bool__(self) -> bool:
        return self.is_new or self.etag is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One response to a list request."""

    entries: tuple[Entry, ...] = ()
    folders: tuple[str, ...] = ()  # keys that end with `/`, if the request asked for folders
    after: str | None = None  # where the next page starts; None: this is the last one


class Parts(Protocol):
    """A write of a large object in parts. Each method sends one request."""

    def send(self, number: int, part: bytes) -> None:
        """Write a part; numbers start at 1."""

    def complete(self) -> str:
        """Make the parts the object, under the condition of the write; return its ETag."""

    def is_written(self, entry: Entry) -> bool:
        """Whether an object is the one of these parts: the response to an earlier `complete` may be lost."""

    def abort(self) -> None:
        """Remove the parts, which cost storage."""


class Gone(PerennialError):
    """The server no longer knows a write in parts; a new one can succeed."""


class BucketStore(ABC):
    """The objects below `scheme://bucket/prefix`; methods as in `Store`."""

    scheme: ClassVar[str]
    no_such_etag: ClassVar[str]
    bucket_word: ClassVar[str] = "bucket"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.bucket, self.prefix = parts.netloc, parts.path.strip("/")
        if not self.bucket or "@" in self.bucket or parts.query:
            form = f"{self.scheme}://{self.bucket_word}/prefix"
            raise ConfigError(f"the URL must be {form}, without user, password or query")
        self.url = f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")
        self._stopped = threading.Event()
        self._conditional: bool | None = None

    @abstractmethod
    def _page(self, prefix: str, after: str | None, *, folders: bool) -> Page:
        """List a page of the keys with a prefix; keys in the answer are below the URL."""

    @abstractmethod
    def _about(self, key: str) -> Entry:
        """Describe an object, with its MD5 if that is known for sure."""

    @abstractmethod
    def _read(self, key: str, target: Target) -> Entry:
        """Append the rest of an object and describe it, with its MD5 if that is known for sure."""

    @abstractmethod
    def _write(self, key: str, stream: BinaryIO, size: int, md5: bytes, condition: Condition) -> str:
        """Write an object and return its ETag; the server compares the MD5 or another digest."""

    @abstractmethod
    def _parts(self, key: str, file: Path, condition: Condition) -> Parts:
        """Start a write in parts."""

    @abstractmethod
    def _remove(self, key: str) -> None:
        """Remove an object, if it exists."""

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """See `Store.list`."""
        for page in self._pages(prefix, folders=False):
            # A key that ends with `/` is the marker of an empty folder.
            yield from (entry for entry in page.entries if not entry.key.endswith("/"))

    def numbers(self) -> tuple[int, ...]:
        """See `Store.numbers`."""
        names = (each.rstrip("/") for page in self._pages("", folders=True) for each in page.folders)
        return tuple(sorted(int(each) for each in names if each.isdecimal()))

    def _pages(self, prefix: str, *, folders: bool) -> Iterator[Page]:
        after: str | None = None
        while True:
            page = self._retried(prefix, partial(self._page, prefix, after, folders=folders))
            yield page
            after = page.after
            if after is None:
                return

    def get(
        self,
        key: str,
        file: Path,
        *,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> Entry:
        """See `Store.get`."""
        files.make_folder(file.parent)
        part, mark = partial_file(file, if_match)
        for last in (False, True):
            with files.naming(part), open(part, "ab", opener=not_following) as stream:
                entry = self._receive(key, stream, if_match, size)
            wrong = mismatch(part, size, sha256, entry.md5)
            if wrong is None:
                part.replace(file)
                mark.unlink(missing_ok=True)
                return entry
            part.unlink()
            if last:
                raise DataError(f"{self.url}/{key} has {wrong}; {file} was not changed")
            log.warning("%s/%s has %s; reading it again from its first byte", self.url, key, wrong)
        raise AssertionError

    def get_bytes(self, key: str) -> tuple[bytes, Entry]:
        """See `Store.get_bytes`."""
        for _ in range(2):
            stream = io.BytesIO()
            entry = self._receive(key, stream)
            digest = hashlib.md5(stream.getvalue(), usedforsecurity=False).hexdigest()
            if entry.md5 in {None, digest}:
                return stream.getvalue(), entry
        raise DataError(f"{self.url}/{key} has the MD5 {digest}, expected {entry.md5}")

    def _receive(self, key: str, stream: IO[bytes], etag: str | None = None, size: int | None = None) -> Entry:
        """Append the missing rest of an object of this size, all from the same version of the object."""
        target = Target(f"{self.url}/{key}", stream, etag, lambda: self._raise_if_stopped(key))

        def attempt() -> Entry:
            start = target.size
            try:
                entry = self._read(key, target)
            except Temporary as error:
                if error.status != 416:  # the object ends where the file does
                    raise
                if start == size and (entry := self._about(key)).etag == target.etag:
                    return entry
                target.restart()
                raise
            if (received := target.size) != entry.size:
                if received > entry.size:
                    target.restart()
                raise Temporary(f"{self.url}/{key}: received {received:,} of {entry.size:,} bytes")
            return entry

        # A description, which some providers give in a request of its own, is progress, too.
        return self._retried(key, attempt, lambda: target.size + PROGRESS_BYTES * (target.known is not None))

    def put(
        self,
        key: str,
        content: bytes | Path,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
    ) -> Entry:
        """See `Store.put`."""
        condition = Condition(etag=if_match, is_new=if_none_match)
        if isinstance(content, Path) and (size := content.stat().st_size) > SINGLE_BYTES:
            return self._put_parts(key, content, size, condition)

        def attempt() -> Entry:
            with _opened(content) as stream:
                size, md5 = _md5(stream)
                etag = self._write(key, stream, size, md5, condition)
            return Entry(key=key, size=size, etag=etag, md5=md5.hex())

        try:
            return self._retried(key, attempt)
        except Changed:
            # If the response to an earlier try was lost, the object has the content of that try.
            if found := self._as_put(key, content):
                return found
            raise
        except Missing as error:
            if if_match is None:
                raise
            raise Changed(f"{self.url}/{key} changed: it no longer exists") from error

    def _as_put(self, key: str, content: bytes | Path) -> Entry | None:
        if isinstance(content, Path):
            return None
        try:
            stored, entry = self.get_bytes(key)
        except Missing:
            return None
        return entry if stored == content else None

    def _put_parts(self, key: str, file: Path, size: int, condition: Condition) -> Entry:
        try:
            return self._send_parts(key, file, size, condition)
        except Gone as error:
            log.warning("%s; sending all parts again", error)
            return self._send_parts(key, file, size, condition)

    def _send_parts(self, key: str, file: Path, size: int, condition: Condition) -> Entry:
        parts = self._retried(key, lambda: self._parts(key, file, condition))
        unit = 256 << 10  # Google takes multiples of this
        length = max(PART_BYTES, -(-size // PARTS // unit) * unit)
        try:
            with files.naming(file), file.open("rb") as stream:
                for number in range(1, -(-size // length) + 1):
                    part = stream.read(length)
                    self._retried(key, partial(parts.send, number, part))
            try:
                etag = self._retried(key, parts.complete)
            except (Changed, Missing, Gone) as error:
                try:
                    found = self._retried(key, lambda: self._about(key))
                except Missing:
                    raise error from None
                if not parts.is_written(found):
                    raise
                etag = found.etag
        except BaseException:
            with suppress(PerennialError):
                parts.abort()
            raise
        return Entry(key=key, size=size, etag=etag)

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with suppress(Missing):
            self._retried(key, lambda: self._remove(key))

    def purge(self, key: str) -> None:  # noqa: B027 - for S3 alone
        """See `Store.purge`."""

    def clear(self) -> None:
        """See `Store.clear`."""
        for entry in self.list():
            self.delete(entry.key)

    def conditional(self) -> bool:
        """See `Store.conditional`."""
        if self._conditional is None:
            self._conditional = self._probe()
        return self._conditional

    def _probe(self) -> bool:
        self._put_probe(Condition())
        for condition in (Condition(is_new=True), Condition(etag=self.no_such_etag)):
            try:
                self._put_probe(condition)
            except Changed:
                continue
            return False
        return True

    def _put_probe(self, condition: Condition) -> None:
        size, md5 = _md5(io.BytesIO(PROBE_TEXT))
        self._retried(PROBE, lambda: self._write(PROBE, io.BytesIO(PROBE_TEXT), size, md5, condition))

    def stop(self) -> None:
        """See `Store.stop`."""
        self._stopped.set()

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _below(self, name: str) -> str:
        """The key of an object by its name in the bucket."""
        return name[len(self._key("")) :]

    def _retried(
        self, key: str, attempt: Callable[[], Result], progress: Callable[[], int] = lambda: 0
    ) -> Result:
        """Return the result of an attempt, retried after temporary errors; progress resets the tries."""
        tries, reached = 0, 0
        while True:
            self._raise_if_stopped(key)
            try:
                return attempt()
            except Temporary as error:
                tries = 1 if progress() >= reached + PROGRESS_BYTES else tries + 1
                reached = max(reached, progress())
                if tries >= (error.tries or retries.STORE_TRIES):
                    raise PerennialError(f"{error}; try again later") from None
                pause_s = random.uniform(0, min(retries.STORE_PAUSE_MAX_S, retries.STORE_PAUSE_S * 2**tries))  # noqa: S311 - no secret
                log.debug("%s; retrying in %.1f s", error, pause_s)
                self._stopped.wait(pause_s)

    def _raise_if_stopped(self, key: str) -> None:
        if self._stopped.is_set():
            raise PerennialError(f"{self.url}/{key}: stopped")


def _opened(content: bytes | Path) -> BinaryIO:
    return io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def _md5(stream: BinaryIO) -> tuple[int, bytes]:
    """Return the size and MD5 of a stream, and rewind it."""
    digest = hashlib.md5(usedforsecurity=False)
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
    size = stream.tell()
    stream.seek(0)
    return size, digest.digest()
