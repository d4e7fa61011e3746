"""Compressed files, chunk by chunk and in constant memory, up to their very end: there stand the checksums."""

import bz2
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

from perennial import files
from perennial.errors import DataError

# The types of isal take its error for an instance.
DAMAGED = (cast("type[Exception]", IsalError), lzma.LZMAError, OSError, ValueError, EOFError)
XZ_MEMORY_BYTES = 1 << 28  # `xz -9` needs a quarter of it


class _Machine(Protocol):
    """What the decompressors of bz2 and lzma are."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """A gzip decompressor with the interface of the other two."""

    def __init__(self) -> None:
        # 16: with header and trailer of gzip, checked.
        self._machine = isal_zlib.decompressobj(16 + isal_zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._machine.eof

    @property
    def needs_input(self) -> bool:
        return not self._machine.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._machine.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._machine.decompress(self._machine.unconsumed_tail + data, max_length)


def chunks(file: Path, kind: str) -> Iterator[bytes]:
    """What a gzip, bzip2 or xz file holds, in pieces of at most 1 MiB; the parts of several are joined.

    Raises:
        DataError: the file is damaged, not whole, or something follows its end.
    """
    machine, data = _machine(kind), b""
    with file.open("rb") as stream:
        while True:
            if machine.eof:
                data = machine.unused_data.lstrip(b"\0")
                # Zeros may follow, as they do on tapes; gzip(1) passes over them too.
                while not data and (padding := stream.read(files.CHUNK_BYTES)):
                    data = padding.lstrip(b"\0")
                if not data:
                    return
                machine = _machine(kind)
            else:
                data = stream.read(files.CHUNK_BYTES) if machine.needs_input else b""
            starved = machine.needs_input and not data
            try:
                content = machine.decompress(data, files.CHUNK_BYTES)
            except DAMAGED as error:
                raise DataError(f"{file} is damaged, at byte {stream.tell()} or before: {error}") from error
            if content:
                yield content
            elif starved and not machine.eof:
                raise DataError(f"{file} is not whole: its {kind} stream has no end")


def _machine(kind: str) -> _Machine:
    if kind == "bzip2":
        return bz2.BZ2Decompressor()
    if kind == "xz":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)
    return _Gzip()
