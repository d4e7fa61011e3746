"""Unfinished downloads on disk: the received bytes, the version that they belong to, and free space."""

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from perennial.base import files
from perennial.base.documents import JsonFile
from perennial.base.errors import PerennialError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFull(PerennialError):
    """The disk, a quota or a limit on file sizes accepts no more bytes."""


def require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse a download that does not fit on the disk."""
    usage = shutil.disk_usage(folder)
    # Some network file systems report a size of 0.
    if usage.total and usage.free < needed_bytes:
        raise DiskFull(
            f"{folder.absolute()} needs {needed_bytes:,} bytes, has {usage.free:,} free; "
            "make room and run this again"
        )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert errors of the file system while the block runs."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in FULL:
            raise DiskFull(
                f"{path.absolute()} cannot be written: {reason}; the partial file was removed; "
                "make room and run this again"
            ) from error
        raise PerennialError(f"{path.absolute()}: {reason}; nothing was replaced") from error


class FileVersion(JsonFile, extra="forbid"):
    """Version of a file on a server."""

    url: str  # without secrets
    etag: str | None = None
    last_modified: str | None = None
    total: int | None = None  # bytes

    @property
    def validator(self) -> str | None:
        """The value for If-Range (RFC 9110, 13.1.5); a weak ETag is none, nor is a date beside it."""
        if self.etag is not None:
            return self.etag if re.fullmatch('"[^"]*"', self.etag) else None
        return self.last_modified


class Partial:
    """`<name>.part` and `<name>.part.json`, which outlive the process. The caller holds the file's lock."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.part"
        self._version = folder / f"{name}.part.json"
        self._rejected = folder / f"{name}.rejected"
        self._stream: FileIO | None = None
        self.size = self.file.stat().st_size if self.file.is_file() else 0
        self.received_bytes = 0  # by this process
        self.resumed_from: int | None = None  # None: all bytes come from one response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def version(self, url: str) -> FileVersion | None:
        """Return the version of the received bytes; None where only a fresh start is safe."""
        try:
            version = FileVersion.model_validate_json(self._version.read_bytes())
        except (OSError, ValidationError):
            return None
        if version.url != url or not self.size:
            return None
        resumable = version.validator and (version.total is None or self.size < version.total)
        return version if resumable or self.size == version.total else None

    def begin(self, version: FileVersion) -> None:
        """Start from the first byte. Empties the file first: a kill never pairs old bytes with it."""
        self._open("wb")
        self.size, self.resumed_from = 0, None
        with disk_errors(self._version):
            files.write_json(self._version, version.model_dump())

    def resume(self) -> None:
        """Open the file for appending."""
        self._open("ab")
        self.resumed_from = self.size

    def append(self, piece: bytes) -> None:
        """Write without a buffer, so that a kill loses no received byte."""
        try:
            with disk_errors(self.file):
                rest = memoryview(piece)
                while rest and self._stream is not None:
                    rest = rest[self._stream.write(rest) or 0 :]
        except DiskFull:
            self.discard()
            raise
        self.size += len(piece)
        self.received_bytes += len(piece)

    def discard(self) -> None:
        """Remove both files."""
        self._close()
        with disk_errors(self.file):
            self.file.unlink(missing_ok=True)
            self._version.unlink(missing_ok=True)
        self.size, self.resumed_from = 0, None

    def reject(self, file: Path | None = None) -> Path:
        """Keep wrong bytes (of the partial file by default) as `<name>.rejected`, instead of earlier ones."""
        self._close()
        with disk_errors(self._rejected):
            (file or self.file).replace(self._rejected)
        if file is None:
            self.discard()
        return self._rejected

    def commit(self, file: Path) -> None:
        """Rename the verified file to its final name, durably."""
        self._close()
        with disk_errors(file):
            files.sync(self.file)
            self.file.replace(file)
            files.sync(file.parent)
            self._version.unlink(missing_ok=True)

    def _open(self, mode: str) -> None:
        self._close()
        with disk_errors(self.file):
            self._stream = FileIO(self.file, mode)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
