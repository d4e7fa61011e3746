"""Objects in folders and in S3 behind one small interface: list, get and put, the last two with conditions."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from perennial.errors import ConfigError, DataError, PerennialError, redacted

Item = TypeVar("Item")
Result = TypeVar("Result")
THREADS = 16  # of `together`
WAITING = 4  # items ahead, per thread


class Missing(DataError):
    """There is no object under this key."""


class Changed(PerennialError):
    """The object is not, or no longer, the one that the condition names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One object as a store lists it."""

    key: str  # below the URL of the store, with `/` between its parts
    size: int  # bytes
    etag: str  # changes when the content changes: in S3 the ETag, in a folder modification time and size
    modified: datetime | None = None  # UTC; None where the answer does not hold it


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Settings of S3 that differ from boto3's own."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    key_id: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


class Store(Protocol):
    """The objects below a URL. Any thread may call the methods.

    All methods retry what can pass, and raise:
        ConfigError: no such bucket, access denied, or no credentials.
        PerennialError: the store cannot be reached, or keeps failing.
    """

    url: str  # without a trailing slash

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Each object whose key starts with the prefix, by the order of the keys' bytes, a page at a time."""

    def numbers(self) -> tuple[int, ...]:
        """The whole numbers directly below the URL that are prefixes of keys, in ascending order."""

    def get(
        self,
        key: str,
        file: Path,
        *,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> Entry:
        """Write an object to a file, which appears when it is complete; the folder is made.

        With `if_match`, the ETag that is expected, bytes of a call that was interrupted are kept beside the
        file as `.NAME.part`, and the next call continues there. The file is not synced to the disk.

        Raises:
            Missing: there is no such object.
            Changed: its ETag is not `if_match`, or it changed while it was read.
            DataError: its size or SHA-256 differs from the expected one.
        """

    def get_bytes(self, key: str) -> tuple[bytes, Entry]:
        """The content of a small object; raises as `get` does."""

    def put(
        self,
        key: str,
        content: bytes | Path,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
    ) -> Entry:
        """Write an object from bytes or a file; readers see the old or the new content.

        With `if_match` only over the object with this ETag, with `if_none_match` only where there is none. A
        write whose answer was lost counts as done when the object has this content: put something unique into
        it where two writers must not both succeed.

        Raises:
            Changed: the condition does not hold; nothing was written.
        """

    def delete(self, key: str) -> None:
        """Remove an object, if there is one; a folder that holds no other object goes with it."""

    def clear(self) -> None:
        """Remove everything below the URL, also what killed writes left in a folder."""

    def conditional(self) -> bool:
        """Whether the store honours the conditions of `put`; a probe writes the object `.perennial` once."""

    def stop(self) -> None:
        """Let every call that runs or waits end soon with an error; the store cannot be used after this."""


def is_s3(url: str) -> bool:
    """Whether a URL or path names objects in S3."""
    return url.startswith("s3://")


def open_store(url: str, access: Access | None = None) -> Store:
    """The store at `s3://bucket/prefix`, or in a folder, which need not exist yet.

    Raises:
        ConfigError: the URL names no bucket or is of another kind, or boto3 is not installed.
    """
    if is_s3(url):
        from perennial.storage.s3 import S3Store  # noqa: PLC0415 - boto3 is optional

        return S3Store(url, access or Access())
    if "://" in url:
        raise ConfigError(f"{redacted(url)} is neither a folder nor s3://bucket/prefix")
    from perennial.storage.local import LocalStore  # noqa: PLC0415 - as the other

    return LocalStore(Path(url))


def file_below(folder: Path, key: str) -> Path:
    """The path of a key below a folder.

    Raises:
        DataError: the key would lead elsewhere, or no file can have this name.
    """
    parts = key.split("/")
    if "\0" in key or any(part in {"", ".", ".."} for part in parts):
        raise DataError(f"the object {key!r} cannot be a file below {folder}; rename or remove it")
    return folder.joinpath(*parts)


def together(store: Store, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`function(item)` of each item, in threads, as they finish; memory does not grow with the items.

    The first error is raised unchanged, and so is a signal; before that the store is stopped, which ends the
    calls that still run.
    """
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
