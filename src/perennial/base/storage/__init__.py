"""One small interface to objects in folders and in buckets: list, conditional get, conditional put."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypedDict, TypeVar, Unpack

from perennial.base.choices import is_bucket
from perennial.base.errors import ConfigError, DataError, PerennialError, redacted

Item = TypeVar("Item")
Result = TypeVar("Result")
THREADS = 16  # of `together`
WAITING = 4  # queued items per thread


class Missing(DataError):
    """No object has this key."""


class Changed(PerennialError):
    """The object does not meet the condition, or has changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One object as a store lists it."""

    key: str  # below the URL of the store, with `/` between its parts
    size: int  # bytes
    etag: str  # changes with the content: the ETag, or a file's modification time and size
    modified: datetime | None = None  # UTC; None if the response lacks it
    md5: str | None = None  # of the content, in hexadecimal, if that is known


class Expected(TypedDict, total=False):
    """What an object has to be; None where that is not known."""

    if_match: str | None  # its ETag
    size: int | None  # bytes
    sha256: str | None


class Store(Protocol):
    """The objects below a URL. Any thread may call the methods.

    All methods retry temporary errors, and raise:
        ConfigError: the bucket does not exist, access is denied, or there are no credentials.
        PerennialError: the store cannot be reached, or keeps failing.
    """

    url: str  # without a trailing slash

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield the objects whose keys start with the prefix, sorted by the bytes of the keys, page by page."""

    def numbers(self) -> tuple[int, ...]:
        """Return the numeric folder names directly below the URL, in ascending order."""

    def get(self, key: str, file: Path, **expected: Unpack[Expected]) -> Entry:
        """Write an object to a file, which appears only when it is complete; the folder is created.

        With `if_match`, an interrupted call to a bucket leaves its bytes beside the file as
        `.NAME.part`, and the next call resumes from there. The file is not synced to disk.
        """

    def get_bytes(self, key: str) -> tuple[bytes, Entry]:
        """Return the content of a small object; raises as `get` does."""

    def put(
        self, key: str, content: bytes | Path, *, if_match: str | None = None, if_none_match: bool = False
    ) -> Entry:
        """Write an object from bytes or a file; readers see either the old or the new content.

        `if_match` replaces only an object with this ETag; `if_none_match` writes only a new object. If the
        response to a write of bytes is lost, the write counts as successful when the object has this content.
        If two writers must not both succeed, make the content unique.
        """

    def delete(self, key: str) -> None:
        """Remove an object, if it exists, and the folders that become empty."""

    def purge(self, key: str) -> None:
        """Remove the versions of an object that S3 kept when this store replaced or deleted it."""

    def clear(self) -> None:
        """Remove everything below the URL, including leftovers of killed writes in a folder."""

    def conditional(self) -> bool:
        """Whether the store honours the conditions of `put`; the first call writes `.perennial` as a probe."""

    def stop(self) -> None:
        """Make all running and waiting calls end soon with an error; the store cannot be used afterwards."""


def open_store(url: str, options: Mapping[str, str] | None = None) -> Store:
    """Open the store at `s3://bucket/prefix` or in a folder, with options as DVC names them in a remote."""
    if is_bucket(url):
        from perennial.base.storage.s3 import S3Store  # noqa: PLC0415 - not needed for folders

        return S3Store(url, options or {})
    if "://" in url:
        raise ConfigError(f"{redacted(url)} is neither a folder nor s3://bucket/prefix")
    from perennial.base.storage.local import LocalStore  # noqa: PLC0415 - not needed for buckets

    return LocalStore(Path(url))


def file_below(folder: Path, key: str) -> Path:
    """Return the path of a key below a folder."""
    parts = key.split("/")
    if "\0" in key or any(part in {"", ".", ".."} for part in parts):
        raise DataError(f"the object {key!r} cannot be a file below {folder}; rename or remove it")
    return folder.joinpath(*parts)


def together(store: Store, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `function(item)` for all items as they are completed; an error or signal stops the store."""
    executor = ThreadPoolExecutor(THREADS, "transfer")
    running: set[Future[Result]] = set()
    try:
        for item in items:
            running.add(executor.submit(function, item))
            if len(running) >= THREADS * WAITING:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in done)
    except BaseException:
        store.stop()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
