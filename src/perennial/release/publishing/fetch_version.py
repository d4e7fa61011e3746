"""Fetch a published version from a folder or from S3, verified file by file."""

import hashlib
import logging
import os
import shutil
import tempfile
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from perennial.base import documents, files
from perennial.base.choices import is_bucket
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.processes import locks
from perennial.base.storage import Entry, Missing, Store, file_below, open_store, together
from perennial.data.downloads.progress_bar import progress_bar
from perennial.release.publishing.version_layout import CURRENT, RECORD, Pointer, VersionRecord

log = logging.getLogger(__name__)
CACHED = 5  # versions that the cache keeps
LOADING_S = 3600  # a process that got a version from the cache has loaded it by then
MADE_BY = files.mark("fetch")
ADVICE = "nothing was fetched; name another version, or publish again"


@dataclass(frozen=True)
class FetchedVersion:
    """A version that is complete in a folder."""

    version: int
    path: str
    files: int
    bytes: int
    moved: bool  # False if the folder already had it


def fetch(url: str, to: Path | None = None) -> FetchedVersion:
    """Fetch a published version into a folder, by default `<name>-<version>` here; replaces it at the end."""
    # The URL names a publish folder or prefix, for its current version, or one version.
    started, version = time.monotonic(), find(url)
    folder = to or Path(f"{version.name}-{version.record.version}")
    with _locked(folder):
        _require_own(folder)
        moved = not version.is_in(folder)
        if moved:
            version.fetch_into(folder)
    sizes = [(folder / name).stat().st_size for name in (*version.record.all_files, RECORD.as_posix())]
    if moved:
        message = "fetched version %d of %s: %d files, %d bytes in %.1f s"
        seconds = time.monotonic() - started
        log.info(message, version.record.version, url, len(sizes), sum(sizes), seconds)
    return FetchedVersion(version.record.version, str(folder), len(sizes), sum(sizes), moved)


def cached(url: str) -> Path:
    """Fetch a version from S3, verified, into the user's cache, which keeps the last ones."""
    version = find(url)
    folder = _cache() / "models" / version.sha256
    with _locked(folder):
        if not version.is_in(folder):
            version.fetch_into(folder)
        os.utime(folder)
    _remove_old(folder.parent)
    return folder


def _remove_old(cache: Path) -> None:
    """Remove versions from the cache that were not used lately; those that another process fetches stay."""
    for folder in _unused(cache):
        with suppress(PerennialError), _locked(folder, timeout_s=0):
            # Another process may have used or removed it before it was locked.
            if folder in _unused(cache) and _is_own(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _unused(cache: Path) -> list[Path]:
    """The versions beyond the last CACHED that no process may be loading now."""
    used = []
    for folder in cache.iterdir():
        with suppress(FileNotFoundError):  # removed by another process
            if not folder.name.startswith("."):
                used.append((folder.stat().st_mtime, folder))
    return [folder for second, folder in sorted(used)[:-CACHED] if second < time.time() - LOADING_S]


def find(url: str) -> "StoredVersion":
    """Find the current version of a publish folder or prefix, or the version at the URL itself."""
    if not is_bucket(url):
        folder = Path(url)
        folder = (folder / CURRENT if (folder / CURRENT).exists() else folder).resolve()
        return StoredVersion.at(open_store(str(folder)), "", folder.parent.name)
    store = open_store(url)
    try:
        content, _ = store.get_bytes(CURRENT)
    except Missing:
        return StoredVersion.at(store, "", store.url.rpartition("/")[0].rpartition("/")[2])
    pointer = documents.parse_checked(content, f"{store.url}/{CURRENT}", Pointer, ADVICE)
    found = StoredVersion.at(store, f"{pointer.version}/", store.url.rpartition("/")[2])
    if found.sha256 != pointer.record_sha256:
        raise DataError(f"{store.url}/{found.prefix}{RECORD} is not the record that {CURRENT} names; {ADVICE}")
    return found


@dataclass(frozen=True)
class StoredVersion:
    """A published version below a prefix of a store."""

    store: Store
    prefix: str
    name: str  # of the publish folder or prefix
    content: bytes  # of its record

    @classmethod
    def at(cls, store: Store, prefix: str, name: str = "") -> "StoredVersion":
        """The version below a prefix."""
        try:
            content, _ = store.get_bytes(f"{prefix}{RECORD.as_posix()}")
        except Missing:
            raise Missing(
                f"{store.url}/{prefix} holds no published version: neither {CURRENT} nor {RECORD} is there; "
                "name a place that `perennial publish` wrote to"
            ) from None
        return cls(store, prefix, name, content)

    @property
    def sha256(self) -> str:
        """The digest of the record, which covers the whole version."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def record(self) -> VersionRecord:
        """Its number and the digests of its files."""
        where = f"{self.store.url}/{self.prefix}{RECORD}"
        return documents.parse_checked(self.content, where, VersionRecord, ADVICE)

    def is_in(self, folder: Path) -> bool:
        """Whether a folder contains exactly this version."""
        if not (folder / RECORD).is_file() or (folder / RECORD).read_bytes() != self.content:
            return False
        found = files.digests(folder)
        found.pop(RECORD.as_posix())
        return found == self.record.all_files

    def fetch_into(self, folder: Path) -> None:
        """Replace a folder by this version after all of it is fetched and verified."""
        with files.new_folder(folder) as new:
            self.download(new)
            files.write_bytes(new / RECORD, self.content)
            (new / files.MARK).write_bytes(MADE_BY)

    def download(self, folder: Path) -> None:
        """Download the files of the version into a folder, and verify their digests."""
        digests = self.record.all_files

        def get(name: str) -> Entry:
            file = file_below(folder, name)
            return self.store.get(f"{self.prefix}{name}", file, sha256=digests[name])

        with progress_bar(f"version {self.record.version}", 0, None) as advance:
            for entry in together(self.store, get, digests):
                advance(entry.size)


def _is_own(folder: Path) -> bool:
    mark = folder / files.MARK
    return mark.is_file() and mark.read_bytes() == MADE_BY


def _require_own(folder: Path) -> None:
    if folder.exists() and not _is_own(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{folder} was not made by `perennial fetch`, which would replace it; nothing was fetched; "
            "name another folder with --to"
        )


def _locked(folder: Path, timeout_s: float | None = None) -> AbstractContextManager[None]:
    """Keep other processes of this user from writing the folder."""
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    lock = _cache() / "locks" / f"{name}.lock"
    return locks.held(lock, "fetch", busy=f"another process fetches {folder}", timeout_s=timeout_s)


def _cache() -> Path:
    """The user's cache folder; without a home, one in the folder for temporary files."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()  # RuntimeError: no home
        files.make_folder(folder := Path(base, "perennial"))
    except (OSError, RuntimeError):
        folder = Path(tempfile.gettempdir(), f"perennial-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise ConfigError(f"{folder} belongs to another user; set XDG_CACHE_HOME to a folder") from None
    return folder
