"""S3, or a server with an S3-compatible API, as a store: retries, resumed reads, large writes in parts."""

import hashlib
import io
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, BinaryIO, TypeVar, Unpack

from perennial.base import files, retries
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.storage import Changed, Entry, Expected, Missing
from perennial.base.storage.s3_errors import Temporary
from perennial.base.storage.s3_requests import CHUNK_BYTES, Page, Requests

log = logging.getLogger(__name__)
Result = TypeVar("Result")
PROGRESS_BYTES = 256 << 10
SINGLE_BYTES = 64 << 20  # larger files are written in parts
PART_BYTES = 16 << 20
PARTS = 9000  # S3 allows 10,000
PROBE = ".perennial"
PROBE_TEXT = b"perennial tests here whether this store honours conditional writes.\n"
NO_ETAG = '"00000000000000000000000000000000"'


class S3Store:
    """The objects below `s3://bucket/prefix`, with credentials that boto3 finds, or of a DVC remote.

    Methods as in `Store`.
    """

    def __init__(self, url: str, options: Mapping[str, str] = MappingProxyType({})) -> None:
        self._requests = Requests(url, options)
        self.url = self._requests.url
        self._stopped = threading.Event()
        self._conditional: bool | None = None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for page in self._pages(prefix, folders=False):
            # A key that ends with `/` is the marker of an empty folder.
            yield from (entry for entry in page.entries if not entry.key.endswith("/"))

    def numbers(self) -> tuple[int, ...]:
        names = (each.rstrip("/") for page in self._pages("", folders=True) for each in page.folders)
        return tuple(sorted(int(each) for each in names if each.isdecimal()))

    def _pages(self, prefix: str, *, folders: bool) -> Iterator[Page]:
        after: str | None = None
        while True:
            page = self._retried(prefix, partial(self._requests.page, prefix, after, folders=folders))
            yield page
            after = page.after
            if after is None:
                return

    def get(self, key: str, file: Path, **expected: Unpack[Expected]) -> Entry:
        files.make_folder(file.parent)
        if_match, size = expected.get("if_match"), expected.get("size")
        part, mark = _partial_file(file, if_match)
        for last in (False, True):
            with files.naming(part), open(part, "ab", opener=_not_following) as stream:
                entry = self._receive(key, stream, if_match, size)
            wrong = _mismatch(part, size, expected.get("sha256"), entry.md5)
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
        for _ in range(2):
            stream = io.BytesIO()
            entry = self._receive(key, stream)
            digest = hashlib.md5(stream.getvalue(), usedforsecurity=False).hexdigest()
            if entry.md5 in {None, digest}:
                return stream.getvalue(), entry
        raise DataError(f"{self.url}/{key} has the MD5 {digest}, expected {entry.md5}")

    def _receive(self, key: str, stream: IO[bytes], etag: str | None = None, size: int | None = None) -> Entry:
        """Append the missing rest of an object of this size, all from the same version of the object."""

        def attempt() -> Entry:
            nonlocal etag
            start = stream.tell()
            try:
                with self._requests.reading(key, etag, start) as content:
                    entry = content.entry
                    if etag not in {None, entry.etag}:
                        raise Changed(f"{self.url}/{key} changed: expected the ETag {etag}, got {entry.etag}")
                    etag = entry.etag
                    if content.start != start:
                        _empty(stream)
                    for chunk in content.chunks:
                        self._raise_if_stopped(key)
                        stream.write(chunk)
            except Temporary as error:
                if error.status != 416:  # the object ends where the file does
                    raise
                if start == size and (entry := self._requests.about(key)).etag == etag:
                    return entry
                _empty(stream)
                raise
            if (received := stream.tell()) != entry.size:
                if received > entry.size:
                    _empty(stream)
                raise Temporary(f"{self.url}/{key}: received {received:,} of {entry.size:,} bytes")
            return entry

        return self._retried(key, attempt, stream.tell)

    def put(
        self, key: str, content: bytes | Path, *, if_match: str | None = None, if_none_match: bool = False
    ) -> Entry:
        conditions = {"IfNoneMatch": "*"} if if_none_match else {}
        if if_match is not None:
            conditions = {"IfMatch": if_match}
        try:
            if isinstance(content, Path) and (size := content.stat().st_size) > SINGLE_BYTES:
                return self._put_parts(key, content, size, conditions)
            return self._put(key, content, conditions)
        except Changed:
            # If the response to an earlier try was lost, the object has the content of that try.
            if isinstance(content, bytes):
                with suppress(Missing):
                    stored, entry = self.get_bytes(key)
                    if stored == content:
                        return entry
            raise
        except Missing as error:
            if if_match is None:
                raise
            raise Changed(f"{self.url}/{key} changed: it no longer exists") from error

    def _put(self, key: str, content: bytes | Path, conditions: Mapping[str, str]) -> Entry:
        def attempt() -> Entry:
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
                size, md5 = _md5(stream)
                etag = self._requests.write(key, stream, size, md5, conditions)
            return Entry(key=key, size=size, etag=etag, md5=md5.hex())

        return self._retried(key, attempt)

    def _put_parts(self, key: str, file: Path, size: int, conditions: Mapping[str, str]) -> Entry:
        upload = self._retried(key, lambda: self._requests.begin_parts(key))
        length = max(PART_BYTES, -(-size // PARTS))
        etags, digests = [], b""
        try:
            with files.naming(file), file.open("rb") as stream:
                for number in range(1, -(-size // length) + 1):
                    part = stream.read(length)
                    md5 = hashlib.md5(part, usedforsecurity=False).digest()
                    digests += md5
                    write = partial(self._requests.write_part, key, upload, number, part, md5)
                    etags.append(self._retried(key, write))
            try:
                etag = self._retried(key, lambda: self._requests.complete_parts(key, upload, etags, conditions))
            except (Changed, Missing) as error:  # the answer to an earlier try may be lost
                etag = f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"'
                if self._etag(key) != etag:
                    raise error from None
        except BaseException:
            with suppress(PerennialError):
                self._requests.abort_parts(key, upload)
            raise
        return Entry(key=key, size=size, etag=etag)

    def _etag(self, key: str) -> str | None:
        """The ETag of an object; None if there is none."""
        with suppress(Missing):
            return self._retried(key, lambda: self._requests.about(key)).etag
        return None

    def delete(self, key: str) -> None:
        with suppress(Missing):
            self._retried(key, lambda: self._requests.remove(key))

    def purge(self, key: str) -> None:
        if self._requests.keeps_versions:
            try:
                self._retried(key, lambda: self._requests.remove_versions(key))
            except ConfigError as error:
                raise ConfigError(f"{error}; its old versions stay until the bucket's rules end them") from None

    def clear(self) -> None:
        for entry in self.list():
            self.delete(entry.key)

    def conditional(self) -> bool:
        if self._conditional is None:
            self._put(PROBE, PROBE_TEXT, {})
            self._conditional = self._refuses({"IfNoneMatch": "*"}) and self._refuses({"IfMatch": NO_ETAG})
        return self._conditional

    def _refuses(self, conditions: Mapping[str, str]) -> bool:
        try:
            self._put(PROBE, PROBE_TEXT, conditions)
        except Changed:
            return True
        return False

    def stop(self) -> None:
        self._stopped.set()

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
                if tries >= error.tries:
                    raise PerennialError(f"{error}; try again later") from None
                pause_s = random.uniform(0, min(retries.STORE_PAUSE_MAX_S, retries.STORE_PAUSE_S * 2**tries))  # noqa: S311 - no secret
                log.debug("%s; retrying in %.1f s", error, pause_s)
                self._stopped.wait(pause_s)

    def _raise_if_stopped(self, key: str) -> None:
        if self._stopped.is_set():
            raise PerennialError(f"{self.url}/{key}: stopped")


def _md5(stream: BinaryIO) -> tuple[int, bytes]:
    """Return the size and MD5 of a stream, and rewind it."""
    digest = hashlib.md5(usedforsecurity=False)
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
    size = stream.tell()
    stream.seek(0)
    return size, digest.digest()


def _not_following(path: str, flags: int) -> int:
    """Open a file of a known name, but no link that somebody put in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _empty(stream: IO[bytes]) -> None:
    stream.seek(0)
    stream.truncate()


def _partial_file(file: Path, etag: str | None) -> tuple[Path, Path]:
    """Return the partial file, with bytes of this version only, and the file that names the version."""
    partial_, mark = file.with_name(f".{file.name}.part"), file.with_name(f".{file.name}.etag")
    known = etag is not None and mark.exists() and mark.read_text(encoding="utf-8") == etag
    if not known:
        partial_.unlink(missing_ok=True)
        mark.unlink(missing_ok=True)
        if etag is not None:
            files.write_bytes(mark, etag.encode())
    return partial_, mark


def _mismatch(file: Path, size: int | None, sha256: str | None, md5: str | None) -> str | None:
    """Return how a file differs from what is expected of it; the MD5 is compared if there is no SHA-256."""
    if size is not None and (found := file.stat().st_size) != size:
        return f"{found:,} bytes, expected {size:,}"
    if sha256 is not None:
        digest = files.sha256(file)
        return None if digest == sha256 else f"the SHA-256 {digest}, expected {sha256}"
    if md5 is not None and (digest := files.md5(file)) != md5:
        return f"the MD5 {digest}, expected {md5}"
    return None
