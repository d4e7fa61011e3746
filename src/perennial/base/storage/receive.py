"""Where the content of an object in a bucket goes, and what an interrupted call leaves of it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from perennial.base import files
from perennial.base.storage import Changed, Entry


class Target:
    """Where the content of an object goes. It may hold its first bytes already, all of one version."""

    def __init__(self, where: str, stream: IO[bytes], etag: str | None, check: Callable[[], None]) -> None:
        self.etag = etag  # of the version to read; None: not known yet
        self.known: Entry | None = None  # what an earlier try learned of it
        self._where, self._stream, self._check = where, stream, check

    @property
    def size(self) -> int:
        """The bytes so far."""
        return self._stream.tell()

    def begin(self, etag: str, start: int) -> None:
        """Take a response with this ETag, whose first byte has this offset in the object."""
        if self.etag not in {None, etag}:
            raise Changed(f"{self._where} changed: expected the ETag {self.etag}, got {etag}")
        self.etag = etag
        if start != self.size:
            self.restart()

    def restart(self) -> None:
        """Remove all bytes."""
        self._stream.seek(0)
        self._stream.truncate()

    def write(self, chunk: bytes) -> int:
        """Append bytes, unless the store was stopped."""
        self._check()
        return self._stream.write(chunk)


def partial_file(file: Path, etag: str | None) -> tuple[Path, Path]:
    """Return the partial file, with bytes of this version only, and the file that names the version."""
    partial, mark = file.with_name(f".{file.name}.part"), file.with_name(f".{file.name}.etag")
    known = etag is not None and mark.exists() and mark.read_text(encoding="utf-8") == etag
    if not known:
        partial.unlink(missing_ok=True)
        mark.unlink(missing_ok=True)
        if etag is not None:
            files.write_bytes(mark, etag.encode())
    return partial, mark


def not_following(path: str, flags: int) -> int:
    """Open a file of a known name, but no link that somebody put in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def mismatch(file: Path, size: int | None, sha256: str | None, md5: str | None) -> str | None:
    """Return how a file differs from what is expected of it; the MD5 is compared if there is no SHA-256."""
    if size is not None and (found := file.stat().st_size) != size:
        return f"{found:,} bytes, expected {size:,}"
    if sha256 is not None:
        digest = files.sha256(file)
        return None if digest == sha256 else f"the SHA-256 {digest}, expected {sha256}"
    if md5 is not None and (digest := files.md5(file)) != md5:
        return f"the MD5 {digest}, expected {md5}"
    return None
