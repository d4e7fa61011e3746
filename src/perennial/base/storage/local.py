"""A folder as a store: keys are paths below it."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Unpack

from perennial.base import files
from perennial.base.errors import DataError
from perennial.base.processes import locks
from perennial.base.storage import Changed, Entry, Expected, Missing, file_below

LOCK = ".perennial.lock"
TEMPORARY = re.compile(r"\..*\.tmp")  # names of `files`


class LocalStore:
    """The files below a folder; hidden names, links to folders and empty folders are not objects."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, str(folder)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        if not self.folder.is_dir():
            raise Missing(f"{self.folder} does not exist")
        # Only the folder up to the last `/` of the prefix can hold keys that start with it.
        yield from self._below(prefix.rpartition("/")[0], prefix)

    def _below(self, parent: str, prefix: str) -> Iterator[Entry]:
        folder = self.folder / parent
        try:
            with os.scandir(folder) as found:
                names = [each for each in found if not each.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return
        # Sort `a/b` after `a.b`, as S3 does.
        folders = {each.name for each in names if each.is_dir(follow_symlinks=False)}
        for each in sorted(names, key=lambda each: os.fsencode(each.name + "/" * (each.name in folders))):
            key = f"{parent}/{each.name}" if parent else each.name
            if each.name in folders:
                if f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                    yield from self._below(key, prefix)
            elif key.startswith(prefix) and each.is_file():
                files.require_utf8(Path(each.path))
                yield _entry(key, each.stat())

    def numbers(self) -> tuple[int, ...]:
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return tuple(sorted(int(path.name) for path in found if path.is_dir() and path.name.isdecimal()))

    def get(self, key: str, file: Path, **expected: Unpack[Expected]) -> Entry:
        source = file_below(self.folder, key)
        before = self._stat(key, expected.get("if_match"))
        size, sha256 = expected.get("size"), expected.get("sha256")
        files.make_folder(file.parent)
        digest = hashlib.sha256()
        with source.open("rb") as content, files.new_file(file, durable=False) as stream:
            while chunk := content.read(files.CHUNK_BYTES):
                digest.update(chunk)
                stream.write(chunk)
            self._stat(key, before.etag)
            if size is not None and stream.tell() != size:
                raise DataError(f"{source} has {stream.tell()} bytes, expected {size}")
            if sha256 is not None and digest.hexdigest() != sha256:
                raise DataError(f"{source} has the SHA-256 {digest.hexdigest()}, expected {sha256}")
        return before

    def get_bytes(self, key: str) -> tuple[bytes, Entry]:
        before = self._stat(key)
        content = file_below(self.folder, key).read_bytes()
        self._stat(key, before.etag)
        return content, before

    def _stat(self, key: str, if_match: str | None = None) -> Entry:
        """Return the current entry of an object."""
        file = file_below(self.folder, key)
        if not file.is_file():
            raise Missing(f"{file} does not exist")
        entry = _entry(key, file.stat())
        if if_match not in {None, entry.etag}:
            raise Changed(f"{file} changed: expected {if_match}, got {entry.etag} (time and size)")
        return entry

    def put(
        self, key: str, content: bytes | Path, *, if_match: str | None = None, if_none_match: bool = False
    ) -> Entry:
        file = file_below(self.folder, key)
        with self._locked("put"):
            files.make_folder(file.parent)
            if if_match is not None:
                if not file.is_file():
                    raise Changed(f"{file} changed: it no longer exists")
                self._stat(key, if_match)
            if if_none_match and file.exists():
                raise Changed(f"{file} already exists")
            before = file.stat().st_mtime_ns if file.exists() else 0
            if isinstance(content, bytes):
                files.write_bytes(file, content)
            else:
                files.copy(content, file)
            # Two writes within one clock tick must have different ETags.
            if before >= (found := file.stat()).st_mtime_ns:
                os.utime(file, ns=(found.st_atime_ns, before + 1))
            return _entry(key, file.stat())

    def delete(self, key: str) -> None:
        file = file_below(self.folder, key)
        if not file.parent.is_dir():
            return
        with self._locked("delete"):
            file.unlink(missing_ok=True)
            folder = file.parent
            # The folder may be gone, by another process that had the lock before. Under the lock, any temporary
            # file is a leftover of a killed `put`.
            while folder != self.folder and folder.is_dir():
                if not all(TEMPORARY.fullmatch(each.name) for each in folder.iterdir()):
                    break
                shutil.rmtree(folder)
                folder = folder.parent

    def purge(self, key: str) -> None:
        """Keep everything: a folder has no versions."""

    def clear(self) -> None:
        removed = self.folder.with_name(f".{self.folder.name}.removed")
        shutil.rmtree(removed, ignore_errors=True)  # left by a killed call
        if self.folder.is_dir():
            with self._locked("clear"):
                self.folder.rename(removed)
            shutil.rmtree(removed)

    def _locked(self, action: str) -> AbstractContextManager[None]:
        return locks.held(self.folder / LOCK, action, busy=f"another process is writing to {self.folder}")

    def conditional(self) -> bool:
        return True  # a lock ensures the conditions

    def stop(self) -> None:
        """See `Store.stop`; copies end on their own."""


def _entry(key: str, stat: os.stat_result) -> Entry:
    modified = datetime.fromtimestamp(stat.st_mtime, UTC)
    return Entry(key=key, size=stat.st_size, etag=f"{stat.st_mtime_ns:x}-{stat.st_size:x}", modified=modified)
