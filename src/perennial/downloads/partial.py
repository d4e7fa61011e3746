"""A file that is on its way: its first bytes, and a note of which version they are of.

Both lie beside the final name and outlive the process, whatever ends it.
"""

import dataclasses
import os
from io import FileIO
from pathlib import Path
from typing import Self

from perennial import files
from perennial.downloads import room
from perennial.downloads.resume import Point, Version
from perennial.errors import DataError


class Partial:
    """`<name>.part` and `<name>.part.json` in a folder. The caller holds the file's lock."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.part"
        self._note = folder / f"{name}.part.json"
        self._rejected = folder / f"{name}.rejected"
        self._stream: FileIO | None = None
        self.size = self.file.stat().st_size if self.file.is_file() else 0
        self.received_bytes = 0  # by this process
        self.resumed_from: int | None = None  # None: every byte is of one answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def point(self, url: str) -> Point | None:
        """Where to go on with an address; None where only a fresh start is safe."""
        try:
            version = Version(**files.read_json(self._note))
        except (DataError, TypeError):
            return None
        typed = all(isinstance(value, str | None) for value in (version.etag, version.last_modified))
        if not typed or not isinstance(version.total, int | None) or version.url != url or not self.size:
            return None
        complete = self.size == version.total
        resumable = version.proof and (version.total is None or self.size < version.total)
        return Point(offset=self.size, version=version) if complete or resumable else None

    def begin(self, version: Version) -> None:
        """Empties the file, then notes the version: in the other order a kill could pair old bytes with it."""
        self._close()
        with room.writing(self.file):
            self._stream = self.file.open("wb", buffering=0)
        self.size, self.resumed_from = 0, None
        with room.writing(self._note):
            files.write_json(self._note, dataclasses.asdict(version))

    def go_on(self) -> None:
        """Opens the file at its end."""
        self._close()
        with room.writing(self.file):
            self._stream = self.file.open("ab", buffering=0)
        self.resumed_from = self.size

    def append(self, piece: bytes) -> None:
        """Writes at once, so that a kill loses nothing that came.

        Raises:
            PerennialError: the disk took no more; what came is removed, to leave no full disk behind.
        """
        try:
            with room.writing(self.file):
                rest = memoryview(piece)
                while rest and self._stream is not None:
                    rest = rest[self._stream.write(rest) or 0 :]
        except room.Full:
            self.discard()
            raise
        self.size += len(piece)
        self.received_bytes += len(piece)

    def discard(self) -> None:
        """Forgets everything."""
        self._close()
        with room.writing(self.file):
            self.file.unlink(missing_ok=True)
            self._note.unlink(missing_ok=True)
        self.size, self.resumed_from = 0, None

    def reject(self, file: Path | None = None) -> Path:
        """Keeps wrong bytes, for a person to look at, in place of earlier ones; its own unless told which."""
        self._close()
        with room.writing(self._rejected):
            (file or self.file).replace(self._rejected)
        if file is None:
            self.discard()
        return self._rejected

    def commit(self, file: Path) -> None:
        """Gives the verified bytes their final name, once they are on the disk."""
        self._close()
        with room.writing(file):
            for path, target in ((self.file, file), (file.parent, None)):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                if target is not None:
                    path.replace(target)
            self._note.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
