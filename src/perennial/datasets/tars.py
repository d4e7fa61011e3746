"""The plain tar format, read header by header.

`tarfile` takes a damaged header for the end of the archive, and a missing end for an end; here both are
refused. Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar, "Basic Tar
Format" (long names).
"""

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from perennial import files
from perennial.datasets.archive_rules import Limits, Names
from perennial.errors import DataError

BLOCK_BYTES = 512
EXTENSION_BYTES = 1 << 20  # the most that the header before a header may hold
END = bytes(2 * BLOCK_BYTES)
REFUSED = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a fifo",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_RECORD = re.compile(rb"([1-9][0-9]{0,8}) ([^=\n]+)=")


@dataclass(frozen=True, slots=True)
class Member:
    """A file or folder in a plain tar file."""

    name: str
    offset: int  # bytes from the start of the tar file to the content
    size: int  # bytes
    folder: bool = False


def walk(tar: Path, archive: Path, limits: Limits) -> Iterator[Member]:
    """The members in their order; messages name the archive that the tar file came from.

    Raises:
        DataError: a member breaks a rule, or the tar file is damaged or not whole.
    """
    names, count, position = Names(archive, limits), 0, 0
    with tar.open("rb", buffering=0) as stream:
        end = stream.seek(0, 2)
        extension = _Extension()
        while header := _header(stream, position, archive, count):
            content, extends = position + BLOCK_BYTES, header.type in _EXTENSIONS
            size = header.size if extends or extension.size is None else extension.size
            position = content + -(-size // BLOCK_BYTES) * BLOCK_BYTES
            if size < 0 or position > end:
                raise DataError(
                    f"{archive} is not whole: member {count + 1}, {_shown(header)}, has {size} bytes of content"
                )
            if extends:
                stream.seek(content)
                extension.read(header.type, stream.read(size) if size <= EXTENSION_BYTES else None)
                if extension.wrong:
                    raise DataError(f"{archive}: the header before member {count + 1} {extension.wrong}")
                continue
            member = _member(header, extension, names, content, size, archive)
            if member.name:
                yield member
            count, extension = count + 1, _Extension()
        if extension.used:
            raise DataError(f"{archive} is not whole: it ends before member {count + 1}")
        _check_end(stream, position, archive, count)
    if not count:
        raise DataError(f"{archive} holds no files")


def _header(stream: BinaryIO, position: int, archive: Path, count: int) -> tarfile.TarInfo | None:
    """The header at a position; None where the end of the archive is marked."""
    stream.seek(position)
    block = stream.read(BLOCK_BYTES)
    if len(block) < BLOCK_BYTES:
        raise DataError(f"{archive} is not whole: no end is marked after {count} members")
    if block == bytes(BLOCK_BYTES):
        return None
    try:
        # Latin-1 keeps every byte; what they mean as UTF-8 is decided later.
        return tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except (tarfile.HeaderError, ValueError, OverflowError) as error:
        raise DataError(
            f"{archive} is damaged: the header at byte {position}, after {count} members: {error}"
        ) from error


def _member(
    header: tarfile.TarInfo, extension: "_Extension", names: Names, offset: int, size: int, archive: Path
) -> Member:
    """The member that a header, and the extension before it, describe."""
    encoded = extension.name if extension.name is not None else header.name.encode("latin-1")
    kind = "a sparse file" if extension.sparse else REFUSED.get(header.type)
    if kind or header.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}:
        kind = kind or f"of the unknown type {header.type!r}"
        raise DataError(f"{archive}: member {_shown(header)} is refused: it is {kind}")
    folder = header.type == tarfile.DIRTYPE
    name = names.add(encoded, folder=folder)
    if folder and size:
        raise DataError(f"{archive}: member {name!r} is refused: it is a folder with content")
    return Member(name=name, offset=offset, size=size, folder=folder)


def _shown(header: tarfile.TarInfo) -> str:
    return repr(header.name.encode("latin-1").decode("utf-8", "backslashreplace"))


def _check_end(stream: BinaryIO, position: int, archive: Path, count: int) -> None:
    """Two blocks of zeros end an archive, and nothing but zeros up to a whole block may follow."""
    stream.seek(position)
    rest = 0
    while chunk := stream.read(files.CHUNK_BYTES):
        rest += len(chunk)
        if chunk.count(0) != len(chunk):
            raise DataError(f"{archive}: something follows the end that is marked after {count} members")
    if rest < len(END) or rest % BLOCK_BYTES:
        raise DataError(f"{archive} is not whole: it ends within its end mark, after {count} members")


_EXTENSIONS = {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME}


@dataclass
class _Extension:
    """What the headers before a header say about it."""

    name: bytes | None = None
    size: int | None = None
    sparse: bool = False
    wrong: str | None = None
    used: bool = field(default=False)

    def read(self, kind: bytes, content: bytes | None) -> None:
        """Takes the content of a header of pax or GNU tar; `wrong` says what is wrong with it."""
        if content is None:
            self.wrong = f"holds more than {EXTENSION_BYTES} bytes"
        elif kind == tarfile.GNUTYPE_LONGNAME:
            self._set_name(content.removesuffix(b"\0"))
        else:
            self._read_pax(content, for_all=kind == tarfile.XGLTYPE)
        self.used |= kind != tarfile.XGLTYPE

    def _set_name(self, name: bytes) -> None:
        if self.name is not None:
            self.wrong = "gives it two names"
        self.name = name

    def _read_pax(self, content: bytes, *, for_all: bool) -> None:
        position = 0
        while position < len(content):
            record = _RECORD.match(content, position)
            end = position + int(record[1]) if record else 0
            if not record or content[end - 1 : end] != b"\n" or end <= record.end():
                self.wrong = "is damaged"
                return
            key, value = record[2], content[record.end() : end - 1]
            if key in {b"path", b"size"} and for_all:
                self.wrong = f"gives all members one {key.decode()}"
            elif key == b"path":
                self._set_name(value)
            elif key == b"size":
                self._set_size(value)
            self.sparse |= key.startswith(b"GNU.sparse.")
            position = end

    def _set_size(self, value: bytes) -> None:
        if self.size is not None or not re.fullmatch(rb"[0-9]{1,18}", value):
            self.wrong = "is damaged"
        else:
            self.size = int(value)
